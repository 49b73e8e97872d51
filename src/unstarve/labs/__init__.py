"""Labs: exercises that check themselves.

lab.py         the nouns: a lab, its faults, its questions
all_labs.py    the list of labs
started.py     a lab in the learner's folder: what was drawn, what was committed
workload.py    what the datasets of labs do: the faults, as real work
drawn.py       how much work each part of an exercise does: much in the part that was drawn
harness.py     trains with a loader of the learner's and digests what it delivers; a process of its own
harness_process.py  runs a harness
ranks.py       the data of the lab of many ranks, and what its samplers do wrong
rank_harness.py  iterates the learner's loader on two ranks and says which samples arrived
breakage.py    what the trainings of the lab "When it breaks" read from, and their limits
break_harness.py  runs one of them and says how it went
versions.py    runs a learner's version and compares its results with the original's; a process of its own
original.py    the version that came with a lab, for questions that have to be measured
nsys_recording.py  an nsys export of a training with a bottleneck that the seed draws
parts_*.py     the lab on faster parts: its draw, its data, its harness, its judge
judge.py       decides whether the learner got there
specs/         one module a lab: its faults, hints and questions
material/      what the learner gets, one folder a lab
"""
