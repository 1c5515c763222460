"""A cell -> its samples: models loaded, prompts decoded, scored, timed and stored.

Read `run` first: a run on one screen. Then, along its calls:

plan       session (the cells of a command), requested_cell (the prompts that a cell asks for),
           claims (locks, each with its Todo), launch (which process does it)
answer     quality (the pass without a clock), jobs (a batch: decoded, scored), answer (the turns of
           a prompt), engine (what an engine must do), models and vllm (the engines), pool
score      judging (an LLM judge; the scorers are in tasks)
time       timed (the pass with a clock), locks (the machine alone), phases and profiling
summarise  related_cells (what compares cells), cost_clock and cost_profile (on another machine),
           trackers, console
"""
