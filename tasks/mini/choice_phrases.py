"""The wording of mini_choice. Slots: x a town; v a value; clause a fact without its full stop."""

from __future__ import annotations

FACTS = {
    "leader": ("The mayor of {x} is {v}.", "The town of {x} is led by {v}."),
    "flag": ("The flag of {x} is {v}.", "{x} has a {v} flag."),
    "dish": ("The best food in {x} is {v}.", "In {x} people love to eat {v}."),
}

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

FRAMES = (
    "{question} Is it {options}?",
    "{question} Choose one option: {options}.",
    "Answer the question. {question} Is it {options}?",
    "Which of five options is right? {question} Is it {options}?",
    "{question} Pick the right answer from this list: {options}.",
    "Here is a question about a town. {question} The options are {options}.",
)

ANSWERS = (
    "{fact} The answer is {v} ({letter}).",
    "{clause}, so the answer is {v} ({letter}).",
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
