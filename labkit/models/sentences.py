"""Sentences on which the heads of a pretrained model are tried.

They were written for this book, but for the first four of SENTENCES, which are the documents' own
and one turned round.
"""

# Questions, lists, quotations and subclauses among them
SENTENCES = (
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
    "The agent opened a pull request because the test suite was green.",
    "The agent merged the pull request after review.",
    "A cold wind blew across the empty harbour all night.",
    "When the rain stopped, the children ran outside.",
    "My sister, who lives in Rome, is visiting us next week.",
    "The baker sold bread, rolls and cake; by noon nothing was left.",
    "Did you remember to lock the door?",
    "He closed the book, switched off the lamp and went to sleep.",
    "Nobody knew why the old clock had stopped.",
    "The bridge was built in 1932 and repaired twice.",
    "If the meeting runs late, call me from the train.",
    "Two ships passed each other in the fog.",
    "The doctor told the nurse that she needed more time.",
    "Water boils sooner on a mountain than by the sea.",
    "The key to the cabinets is on the table.",
    '"Where are we?" asked the boy.',
    "The committee praised the report, but its author was absent.",
    "Green apples taste sour; red ones are sweeter.",
    "The musician tuned her violin before the concert began.",
    "Turn left at the church, then follow the river.",
    "The company that hired him closed last year.",
    "I have never seen so many stars.",
    "The cat watched the bird, and the bird watched the cat.",
    "Prices rose, wages did not.",
    "She gave her brother the letter that their mother had written.",
    "The engine failed because the pump was broken.",
    "After a long pause, the judge began to read the verdict.",
    "The teacher explained the rule and then gave an example.",
    "Snow covered the fields, the roofs and the narrow road.",
    "Most of the students passed, although the test was hard.",
    "The dog that chased the postman is asleep now.",
    "No train leaves this station on Sundays.",
    "The painter mixed blue and yellow to get green.",
    "Every map leaves something out.",
)

# Sentence, subject, verb, object
CLAUSES = (
    ("The agent merged the request after review.", "agent", "merged", "request"),
    ("The teacher quietly opened the old window.", "teacher", "opened", "window"),
    ("The dog that lives next door chased the cat.", "dog", "chased", "cat"),
    ("My neighbour from the city sold a car.", "neighbour", "sold", "car"),
    ("The children in the garden ate the cake.", "children", "ate", "cake"),
    ("The engineer with the red hat repaired the bridge.", "engineer", "repaired", "bridge"),
    ("The farmer planted many small trees behind the barn.", "farmer", "planted", "trees"),
    ("A letter from the bank surprised my father at breakfast.", "letter", "surprised", "father"),
    ("The pilot slowly raised the heavy bag above his head.", "pilot", "raised", "bag"),
    ("The singer in the blue dress thanked the crowd for flowers.", "singer", "thanked", "crowd"),
    ("The girl who found the key opened the door.", "girl", "opened", "door"),
    ("A storm destroyed the old pier.", "storm", "destroyed", "pier"),
)

# Sentence, a word, its synonym, an unrelated word to put in the synonym's place
SYNONYMS = (
    ("The big house stood near a large tree.", "big", "large", "wooden"),
    ("He will begin the talk and start the music.", "begin", "start", "record"),
    ("A fast car passed the quick rider.", "fast", "quick", "brave"),
    ("The doctor called and the physician answered.", "doctor", "physician", "teacher"),
    ("They buy bread and purchase milk.", "buy", "purchase", "carry"),
    ("A happy child met a glad man.", "happy", "glad", "tall"),
    ("The film was good, and I like every movie.", "film", "movie", "meal"),
    ("She shut the window and closed the curtain.", "shut", "closed", "cleaned"),
    ("A small dog ran past a little girl.", "small", "little", "clever"),
    ("The road was long, but the street was quiet.", "road", "street", "garden"),
    ("He spoke quickly and then talked about music.", "spoke", "talked", "thought"),
    ("They found a rock under the stone bridge.", "rock", "stone", "wooden"),
)

# Sentence, pronoun, the noun it stands for
PRONOUNS = (
    ("Although he was tired, John finished the report.", "he", "john"),
    ("Mary said that she would come tomorrow.", "she", "mary"),
    ("The dog hurt its leg and it cried.", "it", "dog"),
    ("John lost the key because he ran too fast.", "he", "john"),
    ("The animal didn't cross the street because it was too tired.", "it", "animal"),
    ("The queen told the boy that she was ill.", "she", "queen"),
    ("Because she was late, the teacher took a taxi.", "she", "teacher"),
    ("The boy lost his hat and he wept.", "he", "boy"),
    ("The company sold the house because it needed money.", "it", "company"),
    ("My uncle told the girls that he was leaving.", "he", "uncle"),
    ("The tree fell on the car when it was cut.", "it", "tree"),
    ("The women thanked the driver before they left.", "they", "women"),
)

# Two nouns, the word that fits each, and two orders of the nouns
SCHEMAS = (
    ("animal street tired wide", "animal didn't cross the street", "street stopped the animal"),
    (
        "statue crate big small",
        "statue didn't fit into the crate",
        "crate couldn't hold the statue",
    ),
    ("ball window heavy thin", "ball broke the window", "window gave way to the ball"),
    ("truck bridge heavy weak", "truck didn't cross the bridge", "bridge couldn't carry the truck"),
    ("horse fence lazy high", "horse didn't jump the fence", "fence stopped the horse"),
    ("dog river young deep", "dog didn't swim across the river", "river stopped the dog"),
    ("cat fish full salty", "cat didn't eat the fish", "fish was left by the cat"),
    ("bird nut weak hard", "bird couldn't open the nut", "nut resisted the bird"),
    ("cow grass sick dry", "cow didn't eat the grass", "grass didn't tempt the cow"),
    ("robot box weak heavy", "robot couldn't lift the box", "box was dropped by the robot"),
    ("table door wide narrow", "table didn't pass the door", "door didn't admit the table"),
    ("book shelf tall low", "book didn't fit on the shelf", "shelf couldn't take the book"),
    ("wolf wall tired steep", "wolf didn't climb the wall", "wall stopped the wolf"),
    ("plane field fast soft", "plane didn't land on the field", "field couldn't take the plane"),
)
