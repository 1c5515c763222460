"""The conversations of mini_chat as plain data: the user's statement, the reply, and the questions that follow.

A name in braces is a fact. Every wording of an answer names the same required facts; facts of one pool (`friend_a`,
`friend_b`) are always named in alphabetical order, so that confusing them is detectable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tasks.mini.words import COLOURS, DAYS, FOODS, JOBS, NAMES

# One wording fits all: nothing here needs "an", and no name is also a verb.
POOLS: Mapping[str, tuple[str, ...]] = {
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

    questions: tuple[str, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Scene:
    """`facts` maps a fact to the pool it is drawn from; `derive` adds the facts that follow from them."""

    facts: Mapping[str, str]
    tells: tuple[str, ...]
    acks: tuple[str, ...]
    closers: tuple[str, ...]
    asks: tuple[Ask, ...]
    derive: Callable[[Mapping[str, str]], Mapping[str, str]] = field(default=lambda facts: {})


def _later(day: str, days: int) -> str:
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
        "Nice to meet you, {name}! You are a {job} in {city}, and your {pet} is called {pet_name}.",
        "Hello, {name}! So you live in {city}, work as a {job}, and have a {pet} called {pet_name}.",
        "Hi {name}, good to meet you. A {job} from {city} with a {pet} called {pet_name}!",
        "Welcome, {name}! I see that you work as a {job} in {city} and that {pet_name} is your {pet}.",
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
                "Hello, {pet_name}! I hope you have a lovely day.",
                "Hi {pet_name}! You are a very good friend.",
                "Good morning, {pet_name}! Have fun today.",
                "Dear {pet_name}, I am happy to meet you!",
            ),
        ),
        Ask(
            (
                "What is my job, and where do I live?",
                "Where do I live, and what do I do?",
                "Do you know my job and my city?",
            ),
            (
                "You are a {job}, and you live in {city}.",
                "You live in {city}, and you work as a {job}.",
                "You told me that you are a {job} in {city}.",
            ),
        ),
        Ask(
            ("Write one line about me for a card.", "Please write one sentence about me.", "Say in one line who I am."),
            (
                "{name} is a {job} from {city}.",
                "This is {name}, who lives in {city} and works as a {job}.",
                "{name} lives in {city} and is a {job}.",
            ),
        ),
        Ask(
            ("What kind of pet do I have, and what is its name?", "Tell me the name of my pet.", "Who is {pet_name}?"),
            ("{pet_name} is your {pet}.", "You have a {pet} called {pet_name}.", "Your {pet} is called {pet_name}."),
        ),
    ),
)

PARTY = Scene(
    facts={"guests": "number", "more": "few", "day": "day", "place": "place", "food": "food", "name": "name"},
    derive=lambda facts: {"total": str(int(facts["guests"]) + int(facts["more"])), "next_day": _later(facts["day"], 1)},
    tells=(
        "I am planning a party for {name}. It is on {day} at the {place}. "
        "There will be {guests} guests, and I bring {food}.",
        "{name} will have a party at the {place} on {day}. I want to bring {food}. We have {guests} guests.",
        "Help me with a party, please. On {day}, {guests} guests come to the {place} for {name}. I will bring {food}.",
        "On {day} there is a party for {name}. "
        "The place is the {place}, {guests} guests will come, and I bring {food}.",
    ),
    acks=(
        "The party for {name} is on {day} at the {place}, with {guests} guests, and you bring {food}.",
        "So {guests} guests come to the {place} on {day} for {name}, and you will bring {food}.",
        "On {day} you bring {food} to the {place} for the party of {name}, with {guests} guests.",
        "A party for {name} at the {place} on {day}! You expect {guests} guests, and you bring {food}.",
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
                "You should bring {food} on {day}.",
                "On {day} you need to bring {food}.",
                "Please bring {food}. The day is {day}.",
            ),
        ),
        Ask(
            (
                "How many guests come if {more} more join?",
                "Now {more} more people want to come. How many guests is that?",
                "I asked {more} more friends. How many guests will there be?",
            ),
            (
                "Then there will be {total} guests.",
                "That makes {total} guests in all.",
                "With them you have {total} guests.",
                "Then {total} guests come to the party.",
            ),
        ),
        Ask(
            (
                "The party is now one day later. Which day is that, and where do we meet?",
                "We moved the party to the day after. When and where is it now?",
            ),
            (
                "It is now on {next_day} at the {place}.",
                "The party is on {next_day}, and you meet at the {place}.",
                "You meet at the {place} on {next_day}.",
            ),
        ),
        Ask(
            (
                "Write a short line to invite a friend.",
                "Please write a short invitation.",
                "Can you write one line to invite people?",
            ),
            (
                "Please come to the party for {name} on {day} at the {place}!",
                "You are invited! We meet on {day} at the {place} for {name}.",
                "Join us at the {place} on {day} for the party of {name}!",
            ),
        ),
    ),
)

SHOPPING = Scene(
    facts={"count_a": "number", "count_b": "number", "ware_a": "ware", "ware_b": "ware", "food": "food", "more": "few"},
    derive=lambda facts: {
        "total": str(int(facts["count_a"]) + int(facts["count_b"])),
        "more_a": str(int(facts["count_a"]) + int(facts["more"])),
    },
    tells=(
        "I need to go to the shop. I want to buy {count_a} {ware_a}, {count_b} {ware_b} and some {food}.",
        "My shopping list for today is this: {count_a} {ware_a}, {count_b} {ware_b} and {food}. Please keep it for me.",
        "Please remember my list. I must buy {count_a} {ware_a} and {count_b} {ware_b}. I also need {food}.",
        "I am on my way to the shop. I will buy {count_a} {ware_a}, {count_b} {ware_b} and also {food}.",
    ),
    acks=(
        "Your list is {count_a} {ware_a}, {count_b} {ware_b} and {food}.",
        "You want {count_a} {ware_a}, {count_b} {ware_b} and some {food}.",
        "So you will buy {count_a} {ware_a} and {count_b} {ware_b}, and also {food}.",
        "I will remember {count_a} {ware_a}, {count_b} {ware_b} and {food}.",
    ),
    closers=("", "", " Do you need more?", " I will keep the list for you.", " Is that all?"),
    asks=(
        Ask(
            (
                "How many {ware_b} do I need?",
                "Tell me the number of {ware_b}, please.",
                "I forgot how many {ware_b} to buy.",
            ),
            ("You need {count_b} {ware_b}.", "Your list says {count_b} {ware_b}.", "Please buy {count_b} {ware_b}."),
        ),
        Ask(
            (
                "How many {ware_a} must I buy?",
                "Do you know the number of {ware_a}?",
                "I forgot how many {ware_a} to buy.",
            ),
            ("You need {count_a} {ware_a}.", "Your list says {count_a} {ware_a}.", "Please buy {count_a} {ware_a}."),
        ),
        Ask(
            ("How many {ware_a} and {ware_b} is that in all?", "How many are the {ware_a} and {ware_b} together?"),
            ("Together that makes {total}.", "That is {total} in all.", "You will have {total} of them in all."),
        ),
        Ask(
            (
                "I need {more} more {ware_a}. How many is that now?",
                "Please add {more} {ware_a}. How many do I buy now?",
            ),
            ("Now you need {more_a} {ware_a}.", "That makes {more_a} {ware_a}.", "You will now buy {more_a} {ware_a}."),
        ),
        Ask(
            (
                "I have the {ware_a} and the {ware_b}. What is still missing?",
                "I bought the {ware_b} and the {ware_a}. What else?",
            ),
            ("You still need {food}.", "Only the {food} is missing.", "Now you only have to buy {food}."),
        ),
    ),
)

TRAVEL = Scene(
    facts={"city_a": "city", "city_b": "city", "day": "day", "hour": "number", "stay": "few", "name": "name"},
    derive=lambda facts: {
        "back": _later(facts["day"], int(facts["stay"])),
        "arrival": str(int(facts["hour"]) + int(facts["stay"])),
    },
    tells=(
        "I will take the train from {city_a} to {city_b} on {day} at {hour} o'clock. I want to visit {name} there.",
        "On {day} I go from {city_a} to {city_b} to see my friend {name}. The train leaves at {hour} o'clock.",
        "My train leaves {city_a} at {hour} o'clock on {day}. It goes to {city_b}, where {name} lives.",
        "I plan a trip to see {name}. I leave {city_a} for {city_b} on {day}, and the train goes at {hour} o'clock.",
    ),
    acks=(
        "Your train goes from {city_a} to {city_b} on {day} at {hour} o'clock, and you visit {name}.",
        "So you leave {city_a} on {day} at {hour} o'clock and go to {city_b} to see {name}.",
        "You will visit {name}, and the train from {city_a} to {city_b} leaves at {hour} o'clock on {day}.",
        "On {day} at {hour} o'clock you take the train from {city_a} to {city_b} to see {name}.",
    ),
    closers=("", "", " Have a good trip!", " That sounds like a nice trip.", " How can I help you?"),
    asks=(
        Ask(
            (
                "I stay for {stay} days. On which day do I come back?",
                "After {stay} days I will go home. Which day is that?",
            ),
            ("You come back on {back}.", "That will be {back}.", "Then you go home on {back}."),
        ),
        Ask(
            (
                "The trip takes {stay} hours. When do I arrive?",
                "I will be on the train for {stay} hours. When am I there?",
            ),
            (
                "You arrive at {arrival} o'clock.",
                "You will be there at {arrival} o'clock.",
                "At {arrival} o'clock you are there.",
            ),
        ),
        Ask(
            (
                "Where do I go, and who do I visit?",
                "Tell me again where I go and who lives there.",
                "Who do I see, and in which city?",
            ),
            (
                "You go to {city_b} to see {name}.",
                "You visit {name} in {city_b}.",
                "Your friend {name} is in {city_b}.",
            ),
        ),
        Ask(
            ("When does my train leave, and from where?", "Where does the train start, and at what time?"),
            (
                "Your train leaves {city_a} at {hour} o'clock.",
                "It leaves at {hour} o'clock from {city_a}.",
                "The train starts in {city_a} at {hour} o'clock.",
            ),
        ),
    ),
)
