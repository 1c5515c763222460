"""Three more conversations of mini_chat: a lost thing, a meeting, two friends. Written as in `scenes`."""

from __future__ import annotations

from models.train.texts.scenes import POOLS, Ask, Scene


def _day_before(day: str) -> str:
    week = POOLS["day"]
    return week[week.index(day) - 1]


LOST_ITEM = Scene(
    facts={"item": "item", "colour": "colour", "place": "place", "day": "day", "name": "name"},
    tells=(
        "I lost my {colour} {item} at the {place} on {day}. My name is {name}. Can you help me?",
        "My name is {name}, and I have a problem. My {item} is gone! It is {colour}. I had it at the {place} on "
        "{day}.",
        "Please help me. I am {name}. On {day} I was at the {place}, and I left my {colour} {item} there.",
        "I cannot find my {item}. It is {colour}, and I lost it on {day} at the {place}. I am {name}.",
    ),
    acks=(
        "I am sorry to hear [that|this|it|of it], {name}. You [lost|left|are missing] a {colour} {item} [at|in] the "
        "{place} on {day}.",
        "Oh no, {name}! So your {colour} {item} was [lost|left] on {day} [at|in] the {place}.",
        "I will [help|try to help|gladly help] you, {name}. We [are looking|look|have to look] for a {colour} "
        "{item}, last seen [at|in] the {place} on {day}.",
        "I see, {name}. On {day} you [left|lost] your {colour} {item} [at|in] the {place}.",
    ),
    closers=("", "", " I hope we find it.", " Let us look for it.", " How can I help you?"),
    asks=(
        Ask(
            (
                "Write a short note about it.",
                "Please write a note that I can put on the wall.",
                "Can you write one line for a note?",
            ),
            (
                "Lost [at|in] the {place}: a {colour} {item}. [Please call|Call|Please tell|Please help] {name}.",
                "Have you seen a {colour} {item}? It was [lost|left] [at|in] the {place}. [Please call|Call|Please "
                "tell|Please help] {name}.",
                "Please help {name} to find a {colour} {item}, lost [at|in] the {place}.",
            ),
        ),
        Ask(
            (
                "Where and when did I lose it?",
                "Tell me where I lost it, and on which day.",
                "Where should I look, and when was it?",
            ),
            (
                "You [lost|left] it [at|in] the {place} on {day}.",
                "It was [at|in] the {place} on {day}.",
                "On {day} you [left|lost] it [at|in] the {place}.",
            ),
        ),
        Ask(
            ("What are we looking for?", "Say again what I lost and what colour it is.", "What did I lose?"),
            (
                "You [lost|left|are missing] a {colour} {item}.",
                "We [are looking|look|have to look] for a {colour} {item}.",
                "[It|That|This] [is|must be] a {colour} {item}.",
            ),
        ),
    ),
)

APPOINTMENT = Scene(
    facts={"name": "name", "job": "job", "day": "day", "hour": "number", "place": "place", "few": "few"},
    derive=lambda facts: {"later": str(int(facts["hour"]) + int(facts["few"])), "before": _day_before(facts["day"])},
    tells=(
        "I have a meeting with {name} on {day} at {hour} o'clock. {name} is a {job}. We meet at the {place}.",
        "Please remember this. On {day} at {hour} o'clock I meet {name}, the {job}, at the {place}.",
        "The {job} {name} wants to talk to me. We will meet at the {place} on {day} at {hour} o'clock.",
        "I must be at the {place} on {day}. At {hour} o'clock I will see {name}, who is a {job}.",
    ),
    acks=(
        "You [meet|see|will meet|will see] {name}, the {job}, [at|in] the {place} on {day} at {hour} o'clock.",
        "On {day} at {hour} o'clock you [will see|see|will meet|meet] the {job} {name} [at|in] the {place}.",
        "[Your|The|This] meeting with {name}, who is a {job}, is [at|in] the {place} at {hour} o'clock on {day}.",
        "[So|Now|Then|All right, so|Good, so] the {job} {name} will be [at|in] the {place} on {day}[, and|; and|, "
        "while|. Also,] you [meet|will meet] at {hour} o'clock.",
    ),
    closers=("", "", " I will remember it.", " Please do not be late!", " How can I help you?"),
    asks=(
        Ask(
            (
                "It will start {few} hours later. At what time is it now?",
                "We meet {few} hours later than planned. When is that?",
            ),
            (
                "[It|That|This] is [now|then] at {later} o'clock.",
                "You [now|will now|will then|then] meet at {later} o'clock.",
                "[The|Your] new time is {later} o'clock.",
            ),
        ),
        Ask(
            (
                "It is now one day earlier. Which day is that?",
                "We moved it to the day before. On which day do we meet now?",
            ),
            (
                "[It|That|This] is [now|then] on {before}.",
                "Then you [meet|will meet] on {before}.",
                "[The|Your] new day is {before}.",
            ),
        ),
        Ask(
            (
                "Who do I meet, and where?",
                "Tell me again who I meet and at which place.",
                "Where do I have to go, and who will be there?",
            ),
            (
                "You [meet|see|will meet|will see] {name} [at|in] the {place}.",
                "At the {place} you [will meet|meet|will see|see] {name}.",
                "You [have|need|want] to go to the {place} to [see|visit|meet] {name}.",
            ),
        ),
        Ask(
            ("What is the job of {name}, and when do we meet?", "When is the meeting, and what does {name} do?"),
            (
                "{name} is a {job}[, and|; and|, while|. Also,] you [meet|will meet] on {day} at {hour} o'clock.",
                "You [meet|see|will meet|will see] on {day} at {hour} o'clock[, and|; and|, while|. Also,] {name} is "
                "a {job}.",
                "[Your|The|This] meeting with the {job} is [on|planned for|set for] {day} at {hour} o'clock.",
            ),
        ),
        Ask(
            ("Write a short message to say that I will come.", "Please write {name} a line that I will be there."),
            (
                "[Dear|Hello|Hi|Hey] {name}, I will be [at|in] the {place} on {day}.",
                "[Hello|Dear|Hi|Hey] {name}, I [will|can|want to] [come|will come|go] to the {place} on {day}.",
                "[Hi|Hello|Dear|Hey] {name}! See you on {day} [at|in] the {place}.",
            ),
        ),
    ),
)

FRIENDS = Scene(
    facts={"friend_a": "name", "friend_b": "name", "city_a": "city", "city_b": "city", "job_a": "job", "job_b": "job"},
    tells=(
        "I have two friends. {friend_a} lives in {city_a} and is a {job_a}. "
        "{friend_b} lives in {city_b} and is a {job_b}.",
        "My friend {friend_a} is a {job_a} in {city_a}. My other friend, {friend_b}, is a {job_b} in {city_b}.",
        "Let me tell you about my friends. "
        "{friend_a} from {city_a} is a {job_a}, and {friend_b} from {city_b} is a {job_b}.",
        "{friend_a} and {friend_b} are my friends. "
        "One is a {job_a} in {city_a}, and the other is a {job_b} in {city_b}.",
    ),
    acks=(
        "{friend_a} is a {job_a} [in|from|of] {city_a}[, and|; and|, while|. Also,] {friend_b} is a {job_b} "
        "[in|from|of] {city_b}.",
        "So {friend_a} lives in {city_a} and works as a {job_a}, "
        "and {friend_b} lives in {city_b} and works as a {job_b}.",
        "You [know|have|told me of] {friend_a}, a {job_a} from {city_a}[, and|; and| and] {friend_b}, a {job_b} from "
        "{city_b}.",
        "One [friend|of them] is {friend_a}, the {job_a} in {city_a}[, and|; and|, while|. Also,] the [other|second] "
        "is {friend_b}, the {job_b} in {city_b}.",
    ),
    closers=("", "", " You have nice friends!", " It is good to have friends.", " How can I help you?"),
    asks=(
        Ask(
            (
                "Which of my two friends lives in {city_a}?",
                "Who can I visit in {city_a}?",
                "I go to {city_a}. Which friend is there?",
            ),
            (
                "[That|This|It] [is|must be|will be] {friend_a}.",
                "[Your|This|That|The] friend {friend_a} [lives|stays|is] in {city_a}.",
                "[It|That|This] [is|must be] {friend_a} who lives there.",
            ),
        ),
        Ask(
            (
                "Which of my two friends lives in {city_b}?",
                "Who can I visit in {city_b}?",
                "I go to {city_b}. Which friend is there?",
            ),
            (
                "[That|This|It] [is|must be|will be] {friend_b}.",
                "[Your|This|That|The] friend {friend_b} [lives|stays|is] in {city_b}.",
                "[It|That|This] [is|must be] {friend_b} who lives there.",
            ),
        ),
        Ask(
            ("What is the job of my friend in {city_a}?", "What does my friend in {city_a} do?"),
            (
                "[Your friend there|This friend|That friend|Your friend] is a {job_a}.",
                "{friend_a} [works|serves] as a {job_a}.",
                "[It|That|This] [is|must be] {friend_a}, who is a {job_a}.",
            ),
        ),
        Ask(
            ("What is the job of my friend in {city_b}?", "What does my friend in {city_b} do?"),
            (
                "[Your friend there|This friend|That friend|Your friend] is a {job_b}.",
                "{friend_b} [works|serves] as a {job_b}.",
                "[It|That|This] [is|must be] {friend_b}, who is a {job_b}.",
            ),
        ),
        Ask(
            (
                "Where does the {job_a} live?",
                "In which city do I find the {job_a}?",
                "I need a {job_a}. Where do I go?",
            ),
            (
                "The {job_a} [lives|stays|is] in {city_a}.",
                "You [find|meet|can visit|can find] {friend_a} in {city_a}.",
                "[Your|This|That|The] friend [lives|stays|is] in {city_a}.",
            ),
        ),
        Ask(
            (
                "Where does the {job_b} live?",
                "In which city do I find the {job_b}?",
                "I need a {job_b}. Where do I go?",
            ),
            (
                "The {job_b} [lives|stays|is] in {city_b}.",
                "You [find|meet|can visit|can find] {friend_b} in {city_b}.",
                "[Your|This|That|The] friend [lives|stays|is] in {city_b}.",
            ),
        ),
    ),
)
