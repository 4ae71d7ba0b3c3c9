// The stage with both models.

import { stage } from "./stage_pocket.js";
import { stories } from "./stage_stories.js";

export default stage({ stories });
