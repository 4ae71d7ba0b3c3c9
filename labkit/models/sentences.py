"""Sentences on which the heads of a pretrained model are tried.

They were written for this book, but for the first four of SENTENCES, which are the documents' own
and one turned round. Where a relation needs many sentences, a small grammar makes them. It has two
halves without a common person, verb, pair or frame: one to choose a head on, one to test it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from labkit.arguments import size, whole

__all__ = [
    "CLAUSES",
    "NOUNS",
    "SCHEMAS",
    "SENTENCES",
    "SYNONYMS",
    "clauses",
    "paraphrases",
    "pronouns",
    "schemas",
    "synonyms",
    "unrelated",
]

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
    ("goat gate hungry rusty", "goat didn't push the gate", "gate kept out the goat"),
    ("man rope clumsy slippery", "man didn't climb the rope", "rope didn't help the man"),
    ("child soup sleepy hot", "child didn't finish the soup", "soup didn't please the child"),
    (
        "mouse cheese scared bitter",
        "mouse didn't take the cheese",
        "cheese didn't attract the mouse",
    ),
    ("boy sofa lazy dirty", "boy didn't move the sofa", "sofa annoyed the boy"),
    ("nurse lamp busy dim", "nurse didn't use the lamp", "lamp didn't help the nurse"),
    ("thief safe nervous solid", "thief didn't open the safe", "safe resisted the thief"),
    ("sheep hill old steep", "sheep didn't climb the hill", "hill stopped the sheep"),
    ("pilot runway careless short", "pilot missed the runway", "runway worried the pilot"),
    ("donkey cart stubborn full", "donkey didn't pull the cart", "cart stopped behind the donkey"),
    ("girl piano impatient loud", "girl didn't play the piano", "piano didn't suit the girl"),
    ("judge letter busy long", "judge didn't read the letter", "letter didn't reach the judge"),
    ("student exam lazy difficult", "student failed the exam", "exam troubled the student"),
    ("fox hen slow noisy", "fox didn't catch the hen", "hen escaped the fox"),
    ("tailor coat greedy expensive", "tailor didn't sell the coat", "coat stayed with the tailor"),
    ("duck pond shy frozen", "duck didn't enter the pond", "pond didn't please the duck"),
    (
        "farmer meadow poor stony",
        "farmer didn't plough the meadow",
        "meadow disappointed the farmer",
    ),
    ("monkey banana clever green", "monkey didn't eat the banana", "banana didn't fool the monkey"),
    (
        "sailor storm drunk violent",
        "sailor didn't survive the storm",
        "storm frightened the sailor",
    ),
    ("hunter forest afraid dark", "hunter didn't enter the forest", "forest stopped the hunter"),
    ("baby spoon tired large", "baby didn't hold the spoon", "spoon didn't please the baby"),
    ("knight sword weak blunt", "knight didn't use the sword", "sword didn't help the knight"),
    ("painter ceiling ill wet", "painter didn't paint the ceiling", "ceiling annoyed the painter"),
    ("camel desert thirsty hot", "camel didn't cross the desert", "desert defeated the camel"),
    ("squirrel tree fat tall", "squirrel didn't climb the tree", "tree defeated the squirrel"),
    ("tourist museum hungry crowded", "tourist left the museum", "museum bored the tourist"),
    ("rabbit hole fat narrow", "rabbit didn't enter the hole", "hole stopped the rabbit"),
    ("waiter tray careless heavy", "waiter dropped the tray", "tray troubled the waiter"),
    ("singer song hoarse high", "singer didn't sing the song", "song defeated the singer"),
    ("driver road sleepy icy", "driver left the road", "road frightened the driver"),
    (
        "elephant boat heavy small",
        "elephant didn't board the boat",
        "boat couldn't carry the elephant",
    ),
    ("hammer nail light thick", "hammer didn't bend the nail", "nail resisted the hammer"),
    ("arrow shield slow hard", "arrow didn't pierce the shield", "shield stopped the arrow"),
    ("knife bread blunt dry", "knife didn't cut the bread", "bread resisted the knife"),
    ("flood dam weak strong", "flood didn't break the dam", "dam held back the flood"),
    ("car garage wide narrow", "car didn't fit into the garage", "garage couldn't hold the car"),
)

PERSONS = (
    "engineer farmer doctor teacher singer pilot baker sailor lawyer painter soldier nurse student "
    "hunter tailor butcher captain clerk gardener guard king priest scientist dancer poet judge "
    "driver cook"
).split()
# What one does, and to what
DEEDS = {
    "admired": "garden castle statue painting church fountain",
    "borrowed": "book ladder bicycle tent guitar camera",
    "bought": "ticket coat boat dress camera piano",
    "broke": "mirror glass chair window cup fence",
    "built": "tower house bridge wall boat cabin",
    "carried": "bag basket ladder chair box stone",
    "cleaned": "kitchen carpet window bottle knife floor",
    "dropped": "plate cup glass vase lamp book",
    "found": "key coin ring knife map purse",
    "hid": "sword letter map gun box necklace",
    "lost": "watch key wallet hat ring ticket",
    "opened": "door window box letter gate bottle",
    "painted": "fence chair boat door ceiling wagon",
    "repaired": "bridge clock engine roof wall lamp",
    "sold": "car horse house painting carpet guitar",
    "stole": "necklace bicycle horse painting coin car",
}
OF_PERSONS = (
    "with the red hat",
    "from the village",
    "in the long coat",
    "near the fire",
    "at the corner",
    "with two sons",
    "who lives next door",
    "from the hospital",
)
OF_DEEDS = (
    "near the river",
    "behind the school",
    "after the storm",
    "on the hill",
    "before dinner",
    "at the station",
    "in the morning",
    "for his brother",
)
BEFORE = ("After lunch", "On Monday", "Last winter", "To our surprise")
ADVERBS = ("quietly", "slowly", "finally", "carefully")
ADJECTIVES = ("old", "small", "heavy", "expensive", "blue", "broken")
ENDINGS = ("was very old", "was too small", "is in the next room", "cost a lot of money")

PAIRS = {
    "adjective": (
        "big large,small little,fast quick,happy glad,angry mad,rich wealthy,sick ill,smart clever,"
        "strange odd,silent quiet,hard difficult,easy simple,scared afraid,brave courageous,"
        "pretty beautiful,tired weary,wet damp,famous renowned,huge enormous,correct right,"
        "sad unhappy,near close,ancient old,evil wicked"
    ),
    "noun": (
        "house home,car automobile,doctor physician,lawyer attorney,road street,rock stone,"
        "film movie,boat ship,child kid,forest woods,gift present,error mistake,shop store,"
        "pupil student,king monarch,couch sofa,garbage trash,picture image,job occupation,"
        "fight battle,illness disease,story tale,path trail,coast shore,rabbit hare,thief robber,"
        "cab taxi,sea ocean,pants trousers"
    ),
    "verb": (
        "begin start,buy purchase,close shut,answer reply,choose select,end finish,help assist,"
        "repair fix,speak talk,yell shout,gather collect,receive get,permit allow,try attempt,"
        "build construct,demand require,hurry rush,jump leap,destroy ruin,cry weep,hide conceal,"
        "need want,throw toss,keep retain"
    ),
}
OF_PAIRS = {
    "adjective": (
        "The {} man sat near a {} woman.",
        "A {} boy met the {} girl.",
        "They saw a {} cat and one {} dog.",
        "He was {} and his brother looked {}.",
    ),
    "noun": (
        "The {} was empty, but the {} was not.",
        "She drew a {} and he drew a {}.",
        "He spoke of the {} before he mentioned the {}.",
        "One {} was on the left, and one {} on the right.",
    ),
    "verb": (
        "They {} in the morning and {} at night.",
        "We {} when others {}.",
        "You will {} today, but I shall {} tomorrow.",
        "Some people {}, while most of them {}.",
    ),
}

WOMEN = (
    "queen mother girl woman aunt actress daughter princess nun bride grandmother sister".split()
)
MEN = "king father boy man uncle actor son prince monk husband grandfather brother".split()
OF_PRONOUNS = (
    "The {a} told the {b} that {p} was late.",
    "The {a} met the {b} when {p} came home.",
    "The {a} waved to the {b} before {p} left.",
    "Although {p} was tired, the {a} waited for the {b}.",
    "The {a} asked the {b} for help because {p} was ill.",
    "The {a} and the {b} talked, and then {p} sang.",
    "The {a} saw the {b} in the garden while {p} was reading.",
    "The {a} called the {b} after {p} had read the letter.",
)

# Each with what says the same, for paraphrases
PEOPLE_TWICE = (
    "doctor physician,lawyer attorney,child kid,thief robber,king monarch,student pupil,"
    "teacher instructor,writer author,policeman officer,seller merchant"
)
DEEDS_TWICE = (
    "helped assisted,hired employed,fired dismissed,taught instructed,called phoned,"
    "praised applauded,blamed accused,followed pursued,saved rescued,fooled deceived"
)
ADJECTIVES_TWICE = (
    "big large,clever smart,rich wealthy,brave courageous,sick ill,famous renowned,sad unhappy,"
    "angry furious,tired weary,strange odd"
)
PLACES_TWICE = (
    ("in the morning", "Early in the day"),
    ("near the coast", "By the shore"),
    ("at the party", "During the celebration"),
    ("in the forest", "In the woods"),
    ("on the road", "On the street"),
    ("after the war", "When the fighting was over"),
)

NOUNS = frozenset(
    [
        *PERSONS,
        *WOMEN,
        *MEN,
        *" ".join(DEEDS.values()).split(),
        *"hat village coat fire corner sons hospital river school storm hill dinner".split(),
        *"station morning brother lunch monday winter surprise room lot money door".split(),
    ]
)


def clauses(n: int, seed: int, half: int) -> list[tuple[str, str, str, str]]:
    """Make sentences in which somebody does something to something.

    In a third of them the object comes first, as in *The box that the judge carried was old*.

    Args:
        n: how many, all different.
        seed: of the draw.
        half: 0 or 1, of the persons and verbs.

    Returns:
        for each the sentence, its subject, verb and object.

    >>> clauses(1, seed=0, half=1)[0][1:]
    ('cook', 'repaired', 'roof')
    """

    def one(draw: random.Random, _: int) -> tuple[str, str, str, str]:
        who = draw.choice(PERSONS[half::2])
        deed = draw.choice(sorted(DEEDS)[half::2])
        what = draw.choice(DEEDS[deed].split())
        subject = f"{who} {draw.choice(OF_PERSONS)}" if draw.random() < 0.6 else who
        done = f"{draw.choice(ADVERBS)} {deed}" if draw.random() < 0.4 else deed
        thing = " ".join([*draw.sample(ADJECTIVES, draw.randrange(3)), what])
        if draw.random() < 1 / 3:
            text = f"the {thing} that the {subject} {done} {draw.choice(ENDINGS)}."
        else:
            after = f" {draw.choice(OF_DEEDS)}" if draw.random() < 0.6 else ""
            before = f"{draw.choice(BEFORE)}, " if draw.random() < 0.4 else ""
            text = f"{before}the {subject} {done} the {thing}{after}."
        return text[0].upper() + text[1:], who, deed, what

    return _different(n, seed, one)


def synonyms(seed: int) -> list[tuple[str, str, str]]:
    """Make a sentence of each of the 77 pairs of synonyms, shuffled.

    Returns:
        for each the sentence, and its two synonyms in their order.

    >>> len(synonyms(seed=0))
    77
    """
    draw = random.Random(whole("seed", seed))
    kinds = [(kind, pair) for kind, pairs in PAIRS.items() for pair in pairs.split(",")]
    draw.shuffle(kinds)
    rows = []
    for kind, pair in kinds:
        a, b = draw.sample(pair.split(), 2)
        rows.append((draw.choice(OF_PAIRS[kind]).format(a, b), a, b))
    return rows


def unrelated(rows: list[tuple[str, str, str]], seed: int) -> list[tuple[str, str, str]]:
    """Put, in place of each second synonym, a word of the same kind from another pair.

    >>> [[text, *words]] = unrelated([("A big and large one.", "big", "large")], seed=0)
    >>> "large" in words
    False
    """
    draw = random.Random(whole("seed", seed))
    kind_of = {pair: kind for kind, pairs in PAIRS.items() for pair in pairs.split(",")}
    swapped = []
    for text, a, b in rows:
        own = f"{a} {b}" if f"{a} {b}" in kind_of else f"{b} {a}"
        others = [pair for pair, kind in kind_of.items() if kind == kind_of[own] and pair != own]
        other = draw.choice(draw.choice(others).split())
        start, _, end = text.rpartition(b)
        swapped.append((f"{start}{other}{end}", a, other))
    return swapped


def pronouns(n: int, seed: int, half: int) -> list[tuple[str, str, str]]:
    """Make sentences about a woman and a man, in which *she* or *he* fits one of the two.

    Each is meant in every second sentence, and comes first in every second of these.

    Args:
        n: how many, all different.
        seed: of the draw.
        half: 0 or 1, of the nouns and of the frames.

    Returns:
        for each the sentence, the pronoun and its noun.

    >>> {row[1] for row in pronouns(2, seed=0, half=0)} == {"she", "he"}
    True
    """

    def one(draw: random.Random, i: int) -> tuple[str, str, str]:
        her, him = draw.choice(WOMEN[half::2]), draw.choice(MEN[half::2])
        pronoun, meant, other = ("she", her, him) if i % 2 else ("he", him, her)
        a, b = (meant, other) if i // 2 % 2 else (other, meant)
        return draw.choice(OF_PRONOUNS[half::2]).format(a=a, b=b, p=pronoun), pronoun, meant

    return _different(n, seed, one)


def schemas(pronoun: str = "it") -> list[tuple[str, str, str, bool]]:
    """Make the four sentences of each of SCHEMAS; two that follow differ in the last word alone.

    Args:
        pronoun: what stands for the noun.

    Returns:
        for each the sentence, the noun meant, the other noun, and whether the first one is meant.

    >>> schemas()[0]
    ("The animal didn't cross the street because it was too tired.", 'animal', 'street', True)
    """
    rows = []
    for nouns, *both in SCHEMAS:
        a, b, fits_a, fits_b = nouns.split()
        for first, clause in zip((a, b), both, strict=True):
            for meant, other, ending in ((a, b, fits_a), (b, a, fits_b)):
                text = f"The {clause} because {pronoun} was too {ending}."
                rows.append((text, meant, other, meant == first))
    return rows


def paraphrases(n: int, seed: int) -> list[tuple[str, str]]:
    """Make sentences, each with another one that says the same: synonyms, in the passive.

    >>> len(set(paraphrases(5, seed=0)))
    5
    """

    def one(draw: random.Random, _: int) -> tuple[str, str]:
        (who, same_who), (whom, same_whom) = draw.sample(_pairs(PEOPLE_TWICE), 2)
        deed, same_deed = draw.choice(_pairs(DEEDS_TWICE))
        (a, same_a), (b, same_b) = draw.sample(_pairs(ADJECTIVES_TWICE), 2)
        place, same_place = draw.choice(PLACES_TWICE)
        return (
            f"The {a} {who} {deed} the {b} {whom} {place}.",
            f"{same_place}, the {same_b} {same_whom} was {same_deed} by the {same_a} {same_who}.",
        )

    return _different(n, seed, one)


def _pairs(words: str) -> list[list[str]]:
    return [pair.split() for pair in words.split(",")]


def _different(n: int, seed: int, one: Callable[[random.Random, int], Any]) -> list[Any]:
    """Draw rows until n of them differ; ``one`` is given how many there are."""

    def rows() -> Iterator[Any]:
        draw, there = random.Random(whole("seed", seed)), set[Any]()
        while True:
            row = one(draw, len(there))
            if row not in there:
                there.add(row)
                yield row

    return list(islice(rows(), size("n", n)))
