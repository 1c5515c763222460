"""The conversations of mini_chat as plain data: the user's statement, the reply, and the questions that follow.

A name in braces is a fact; brackets in answers hold free choices of wording (`phrase.py`). Every wording of an answer
names the same required facts; facts of one pool (`friend_a`, `friend_b`) are always named in alphabetical order, so
that confusing them is detectable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from models.train.texts.phrase import Wordings
from models.train.texts.words import COLOURS, DAYS, FOODS, JOBS, NAMES

# One wording fits all: nothing here needs "an", and no name is also a verb.
POOLS: Mapping[str, Wordings] = {
    "name": tuple(name for name in NAMES if name not in ("Mark", "Will")),
    "city": tuple("Berlin Dublin London Madrid Oslo Paris Rome Vienna".split()),
    "day": DAYS,
    "colour": tuple(colour for colour in COLOURS if colour != "orange"),
    "job": tuple(job for job in JOBS if job[0] != "a"),
    "pet": tuple("bird cat dog horse rabbit".split()),
    "pet_name": tuple("Rex Luna Max Coco Bella Toby".split()),
    "food": tuple(food for food in FOODS if food != "eggs"),
    "ware": tuple("apples cards cups eggs nuts oranges pens plates stamps".split()),
    "item": tuple("bag book coat hat key phone ring watch".split()),
    "place": tuple("library market museum park school station theatre".split()),
    "number": tuple("23456789"),
    "few": tuple("23"),
}


@dataclass(frozen=True)
class Ask:
    """A second turn: ways to ask, and ways to answer."""

    questions: Wordings
    answers: Wordings


@dataclass(frozen=True)
class Scene:
    """`facts` maps a fact to the pool it is drawn from; `derive` adds the facts that follow from them."""

    facts: Mapping[str, str]
    tells: Wordings
    acks: Wordings
    closers: Wordings
    asks: tuple[Ask, ...]
    derive: Callable[[Mapping[str, str]], Mapping[str, str]] = field(default=lambda facts: {})


def later(day: str, days: int) -> str:
    """The day of the week some days after another."""
    week = POOLS["day"]
    return week[(week.index(day) + days) % len(week)]


INTRODUCTION = Scene(
    facts={"name": "name", "city": "city", "job": "job", "pet": "pet", "pet_name": "pet_name"},
    tells=(
        "Hi, my name is {name}. I am a {job} from {city}, and I have a {pet} called {pet_name}.",
        "Hello! I am {name} and I live in {city}. I work as a {job}. My {pet} is called {pet_name}.",
        "I want to tell you about me. I am {name}, a {job} in {city}. I have a {pet}. Its name is {pet_name}.",
        "Good morning. {name} is my name and {city} is my home. I am a {job}, and {pet_name} is my {pet}.",
    ),
    acks=(
        "[Nice|Good|Great|Lovely] to [meet|know|see|have] you, {name}! You [are|work as] a {job} [in|from|of] "
        "{city}, and [your|the] {pet} [is called|is named|has the name] {pet_name}.",
        "[Hello|Hi|Welcome|Good day], {name}! So you [live|stay|are] in {city}, [work|serve] as a {job}, and "
        "[have|own|keep] a {pet} [called|named|with the name] {pet_name}.",
        "[Hi|Hello|Dear|Hey] {name}, [good|nice|great|lovely] to [meet|know|see|have] you. A {job} from {city} with "
        "a {pet} [called|named|with the name] {pet_name}!",
        "[Welcome|Hello there|Hi there|Good day], {name}! I [see|hear|know|note] that you [work|serve] as a {job} "
        "[in|from|of] {city} and that {pet_name} is your {pet}.",
    ),
    closers=("", "", " How can I help you?", " What can I do for you?", " That sounds lovely."),
    asks=(
        Ask(
            (
                "Write a short greeting for my {pet}.",
                "Please write a few kind words for my {pet}.",
                "Can you say hello to my {pet}?",
            ),
            (
                "[Hello|Hi|Hey|Good day], {pet_name}! I hope you have a [lovely|good|nice|great] day.",
                "Hi {pet_name}! You are a very [good|nice|dear] friend.",
                "Good morning, {pet_name}! Have [fun|joy|a good time] today.",
                "Dear {pet_name}, I am [happy|so happy|glad] to meet you!",
            ),
        ),
        Ask(
            (
                "What is my job, and where do I live?",
                "Where do I live, and what do I do?",
                "Do you know my job and my city?",
            ),
            (
                "You [are|work as] a {job}[, and|; and|, while|. Also,] you [live|stay|are] in {city}.",
                "You [live|stay|are] in {city}[, and|; and|, while|. Also,] you [work|serve] as a {job}.",
                "[You told me that|I know that|You said that] you [are|work as] a {job} [in|from|of] {city}.",
            ),
        ),
        Ask(
            (
                "Write one line about me for a card.",
                "Please write one sentence about me.",
                "Say in one line who I am.",
            ),
            (
                "{name} is a {job} from {city}.",
                "[This|That|Here] is {name}, who [lives|stays|is] in {city} and [works|serves] as a {job}.",
                "{name} [lives|stays|is] in {city} and is a {job}.",
            ),
        ),
        Ask(
            (
                "What kind of pet do I have, and what is its name?",
                "Tell me the name of my pet.",
                "Who is {pet_name}?",
            ),
            (
                "{pet_name} is your {pet}.",
                "You [have|own|keep] a {pet} [called|named|with the name] {pet_name}.",
                "Your {pet} [is called|is named|has the name] {pet_name}.",
            ),
        ),
    ),
)

PARTY = Scene(
    facts={"guests": "number", "more": "few", "day": "day", "place": "place", "food": "food", "name": "name"},
    derive=lambda facts: {"total": str(int(facts["guests"]) + int(facts["more"])), "next_day": later(facts["day"], 1)},
    tells=(
        "I am planning a party for {name}. It is on {day} at the {place}. "
        "There will be {guests} guests, and I bring {food}.",
        "{name} will have a party at the {place} on {day}. I want to bring {food}. We have {guests} guests.",
        "Help me with a party, please. On {day}, {guests} guests come to the {place} for {name}. I will bring "
        "{food}.",
        "On {day} there is a party for {name}. "
        "The place is the {place}, {guests} guests will come, and I bring {food}.",
    ),
    acks=(
        "The party for {name} is [on|planned for|set for] {day} [at|in] the {place}, with {guests} "
        "[guests|people|friends][, and|; and|, while|. Also,] you [bring|take|will bring|want to bring] {food}.",
        "[So|Now|Then|All right, so|Good, so] {guests} [guests|people|friends] [come|will come|go] to the {place} on "
        "{day} for {name}[, and|; and|, while|. Also,] you [will bring|bring|will take|want to bring] {food}.",
        "On {day} you [bring|take|will bring|want to bring] {food} to the {place} for the party [of|for|with] "
        "{name}, with {guests} [guests|people|friends].",
        "A party for {name} [at|in] the {place} on {day}! You [expect|have|want] {guests} [guests|people|friends][, "
        "and|; and|, while|. Also,] you [bring|take|will bring|want to bring] {food}.",
    ),
    closers=("", "", " That sounds like fun!", " What a nice plan.", " How can I help you?"),
    asks=(
        Ask(
            (
                "What should I bring, and on which day?",
                "Tell me again what I bring and when.",
                "What do I need to bring, and when?",
            ),
            (
                "You [should|must|will|can] [bring|take] {food} on {day}.",
                "On {day} you [need|want|have] to [bring|take] {food}.",
                "[Please|Just|So please] [bring|take] {food}. [The|Your|That] day is {day}.",
            ),
        ),
        Ask(
            (
                "How many guests come if {more} more join?",
                "Now {more} more people want to come. How many guests is that?",
                "I asked {more} more friends. How many guests will there be?",
            ),
            (
                "[Then|So|Now|In all] there [will be|are] {total} [guests|people|friends].",
                "[That|This|It] [makes|is|gives] {total} [guests|people|friends] [in all|in total|together].",
                "[With them|In all|In total|Then] you have {total} [guests|people|friends].",
                "Then {total} [guests|people|friends] [come|will come|go] to the party.",
            ),
        ),
        Ask(
            (
                "The party is now one day later. Which day is that, and where do we meet?",
                "We moved the party to the day after. When and where is it now?",
            ),
            (
                "[It|That|This] is [now|then] on {next_day} [at|in] the {place}.",
                "The party is on {next_day}[, and|; and|, while|. Also,] you [meet|will meet] [at|in] the {place}.",
                "You [meet|see|will meet|will see] [at|in] the {place} on {next_day}.",
            ),
        ),
        Ask(
            (
                "Write a short line to invite a friend.",
                "Please write a short invitation.",
                "Can you write one line to invite people?",
            ),
            (
                "[Please|Do] [come|will come|go] to the party for {name} on {day} [at|in] the {place}!",
                "[You are invited!|Please come!|Come along!] We meet on {day} [at|in] the {place} for {name}.",
                "[Join|Meet] us [at|in] the {place} on {day} for the party [of|for|with] {name}!",
            ),
        ),
    ),
)
