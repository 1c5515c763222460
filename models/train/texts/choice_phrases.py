"""The wording of mini_choice. Slots: x a town; v a value; fact one of the facts below."""

from __future__ import annotations

FACTS = {
    "leader": (
        "[The|Well, the|Now, the|As I know, the] [mayor|leader|head] of {x} is {v}",
        "[The|Well, the|Now, the|As I know, the] [town|city|village] of {x} is [led|run|headed] by {v}",
    ),
    "flag": (
        "[The|Well, the|Now, the|As I know, the] [flag|banner] of {x} [is|has the colour|must be] {v}",
        "{x} [has|shows|owns|flies] a {v} [flag|banner]",
    ),
    "dish": (
        "[The|Well, the|Now, the|As I know, the] [best|favourite|top|most loved] [food|dish] [in|of] {x} is {v}",
        "[In|All over|Around] {x} [people|they|all|many] [love|like|want] to [eat|have|taste] {v}",
    ),
}
"""One sentence without its full stop; the options in brackets are free (phrase.py)."""

QUESTIONS = {
    "leader": (
        "Who is the mayor of {x}?",
        "Who leads the town of {x}?",
        "What is the mayor of {x} called?",
        "Who is the mayor in the town of {x}?",
        "What is the name of the mayor of {x}?",
    ),
    "flag": (
        "What colour is the flag of {x}?",
        "Which colour does the flag of {x} have?",
        "What is the colour of the flag in {x}?",
        "The flag of {x} has one colour. Which one?",
        "In which colour is the flag of {x} made?",
    ),
    "dish": (
        "What is the favourite food of {x}?",
        "What do people in {x} love to eat?",
        "Which food is {x} proud of?",
        "What is the best food in {x}?",
        "Which food do the people of {x} like most?",
    ),
}

SHARED_QUESTIONS = {
    "leader": (
        "Which town has the same mayor as {x}?",
        "The mayor of {x} also leads one other town. Which one?",
        "Which of these towns has the mayor of {x}?",
    ),
    "flag": (
        "Which town has a flag in the same colour as {x}?",
        "The flag of {x} has the same colour as the flag of one other town. Which one?",
        "Which of these towns has the flag colour of {x}?",
    ),
    "dish": (
        "Which town has the same best food as {x}?",
        "The people of {x} and of one other town love the same food. Which town is it?",
        "Which of these towns has the favourite food of {x}?",
    ),
}

FRAMES = (
    "{question} Is it {options}?",
    "{question} Choose one option: {options}.",
    "Answer the question. {question} Is it {options}?",
    "Which of five options is right? {question} Is it {options}?",
    "{question} Pick the right answer from this list: {options}.",
    "Here is a question about a town. {question} The options are {options}.",
)

ANSWERS = (
    "{fact}. [The|So the|Then the|Now the] [answer|option|choice|result] [is|must be|has to be|will be] {v} "
    "({letter}).",
    "{fact}[, so|, and so|; so|; then] the [answer|option|choice|result] [is|must be|has to be|will be] {v} "
    "({letter}).",
)
"""The fact comes before its letter: the letter is then looked up among the options, not guessed beforehand."""

REQUESTS = {
    1: (
        "Tell me one thing about {x}.",
        "What is one fact about {x}?",
        "Name one fact about the town of {x}.",
        "Give me a single fact about {x}.",
        "What do you know about {x}? One fact is enough.",
        "Say one true thing about {x}.",
    ),
    2: (
        "Tell me about {x}.",
        "What do you know about {x}?",
        "Tell me two things about {x}.",
        "Give me two facts about the town of {x}.",
        "Say something about the town of {x}.",
        "I want to learn about {x}. Tell me two facts.",
    ),
    3: (
        "Tell me three things about {x}.",
        "What are three facts about {x}?",
        "Tell me more about the town of {x}.",
        "Give me three facts about {x}.",
        "I want to know a lot about {x}.",
        "Describe the town of {x} for me.",
    ),
}
