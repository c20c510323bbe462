#!/usr/bin/env python3
"""Writes topology_train.json and topology_test.json beside itself: questions about small random networks.

Every answer is computed from the network that the question describes. The two files share no network (neither the set
of links nor, where they have them, their delays), and the same seed writes the same bytes.

  explain    what a link, a role or a metric of the network means
  reasoning  the longest delay, what fails with a link, the shortest path
  topology   a description turned into a list of links, and back
"""
import argparse
import json
import os
import random
import sys

CITIES = ("Oslo Rome Paris Madrid London Berlin Vienna Dublin Prague Warsaw Athens Lisbon Boston Chicago Denver Dallas "
          "Miami Seattle Tokyo Sydney Delhi Cairo Moscow Toronto Montreal Houston Atlanta Phoenix").split()
KINDS = ("explain", "reasoning", "topology")


def pick_names(rng, count):
    """Names of one style, each a few tokens long: cities, or numbered routers, switches or hosts."""
    if rng.random() < 0.7:
        return rng.sample(CITIES, count)
    prefix = rng.choice(("r", "sw", "node", "host"))
    return [prefix + str(n) for n in rng.sample(range(1, 10), count)]


def edges_of(shape, names):
    """The links of a shape in canonical order: as a reader meets them who follows the names."""
    if shape == "star":
        return [(names[0], other) for other in names[1:]]
    chain = list(zip(names, names[1:]))
    return chain + [(names[-1], names[0])] if shape == "ring" else chain


def link(edge):
    return "-".join(edge)


def listed(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def neighbors(edges, node):
    return [b if a == node else a for a, b in edges if node in (a, b)]


def reachable(edges, start):
    found, todo = {start}, [start]
    while todo:
        for other in neighbors(edges, todo.pop()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def shortest_path(edges, start, end):
    """The path with the fewest links; the networks it is asked for have only one."""
    paths = [[start]]
    while True:
        ends = [p for p in paths if p[-1] == end]
        if ends:
            assert len(ends) == 1, "the shortest path is not unique"
            return ends[0]
        paths = [p + [n] for p in paths for n in neighbors(edges, p[-1]) if n not in p]


# explain --------------------------------------------------------------------------------------------------------------

ROLES = {
    "core": "carries traffic between the sites",
    "edge": "connects the network to the outside",
    "access": "connects users to the network",
    "backup": "takes over when another node fails",
    "monitor": "watches the network and raises alarms",
}


def explain_link(rng, net):
    edge = rng.choice(net["edges"])
    delay = net["delays"][edge]
    question = rng.choice((
        "What does the entry {link} {delay} ms say?", "Explain the entry {link} {delay} ms in one sentence.",
        "Put into words: {link} {delay} ms.", "How should the line {link} {delay} ms be read?",
        "A colleague asks what {link} {delay} ms stands for. What do you answer?",
        "In plain words, what is {link} {delay} ms?")).format(link=link(edge), delay=delay)
    return question, with_delays(net), f"{edge[0]} and {edge[1]} are linked directly, with a delay of {delay} ms."


def explain_role(rng, net):
    roles = {n: rng.choice(tuple(ROLES)) for n in net["names"]}
    node = rng.choice(net["names"])
    question = rng.choice((
        "What is the role of {node}, and what does it mean?", "Explain what {node} does in this network.",
        "What is {node} there for?", "Which role has {node}? Say what that role means.",
        "Tell me in one sentence what {node} does.", "Describe the job of {node}.")).format(node=node)
    given = "Roles: " + ", ".join(f"{n} {r}" for n, r in roles.items()) + "."
    return question, given, f"{node} is a node of the {roles[node]} role: it {ROLES[roles[node]]}."


def explain_metric(rng, net):
    edge = rng.choice(net["edges"])
    metric, value, answer = rng.choice((
        ("loss", f"{rng.randint(1, 9)} %", "{value} of the packets between {a} and {b} get lost."),
        ("rate", f"{rng.choice((1, 2, 5, 10, 25, 40, 100))} Gbit/s", "Up to {value} can flow between {a} and {b}."),
        ("load", f"{rng.randint(1, 9)}0 %", "{value} of the capacity between {a} and {b} is in use."),
        ("cost", str(rng.randint(2, 30)), "Routing counts {value} for each trip between {a} and {b}.")))
    question = rng.choice((
        "What does {metric} {value} mean on {link}?", "Explain the figure {metric} {value} of link {link}.",
        "Link {link} shows {metric} {value}. What does that tell us?", "Say in words: {link}, {metric} {value}.",
        "How do I read {metric} {value} for {link}?")).format(metric=metric, value=value, link=link(edge))
    given = rng.choice(("Network: ", "Links: ")) + ", ".join(map(link, net["edges"])) + "."
    return question, given, answer.format(value=value, a=edge[0], b=edge[1])


# reasoning ------------------------------------------------------------------------------------------------------------

def with_delays(net):
    return "Links: " + ", ".join(f"{link(e)} {net['delays'][e]} ms" for e in net["edges"]) + "."


def reasoning_delay(rng, net):
    edge = max(net["edges"], key=net["delays"].get)
    question = rng.choice((
        "Which link has the longest delay?", "Name the slowest link.", "Where is the delay the largest?",
        "Which of the links takes the most time?", "Find the link with the highest delay.",
        "What is the worst link by delay?"))
    return question, with_delays(net), f"{link(edge)} with {net['delays'][edge]} ms."


def reasoning_failure(rng, net):
    edges, start = net["edges"], net["names"][0]
    broken = rng.choice(edges)
    left = reachable([e for e in edges if e != broken], start)
    lost = [n for n in net["names"] if n not in left]
    question = rng.choice((
        "Link {link} goes down. Which nodes can {start} no longer reach?",
        "If {link} fails, which nodes are cut off from {start}?",
        "What does {start} lose when {link} breaks?", "{link} is cut. Which nodes are lost to {start}?",
        "Which nodes are out of reach of {start} without {link}?")).format(link=link(broken), start=start)
    return question, "Links: " + ", ".join(map(link, edges)) + ".", f"Lost: {', '.join(lost) if lost else 'none'}."


def reasoning_path(rng, net):
    names = net["names"]
    pairs = [(a, b) for a in names for b in names if a != b]
    # Opposite corners of a ring have two shortest paths.
    if net["shape"] == "ring":
        size = len(names)
        pairs = [(a, b) for a, b in pairs if 2 * abs(names.index(a) - names.index(b)) != size]
    start, end = rng.choice(pairs)
    question = rng.choice((
        "What is the shortest path from {a} to {b}?", "Give the path with the fewest links from {a} to {b}.",
        "How does a packet get from {a} to {b} in the fewest hops?", "Which way is the shortest from {a} to {b}?",
        "Find the shortest route between {a} and {b}, starting at {a}.")).format(a=start, b=end)
    path = shortest_path(net["edges"], start, end)
    return question, "Links: " + ", ".join(map(link, net["edges"])) + ".", f"Path: {' > '.join(path)}."


# topology -------------------------------------------------------------------------------------------------------------

DESCRIPTIONS = {
    "star": ("{first} is the hub; {rest} connect to it.", "A star around {first} with {rest}.",
             "{first} is linked to each of {rest}.", "In the middle stands {first}, joined to {rest}."),
    "chain": ("A chain from {first} over {rest}.", "{first} leads on to {rest}, one after the other.",
              "A line that starts at {first} and goes through {rest}.", "In a row stand {first}, then {rest}."),
    "ring": ("A ring of {first}, {rest}, closed at the end.", "{first}, {rest} form a circle.",
             "A loop runs from {first} through {rest} and back.", "{first} is followed by {rest}, then the ring closes."),
}


def topology_links(rng, net):
    question = rng.choice((
        "List the links of this network.", "Turn the description into a list of links.",
        "Write the network as a link list.", "Which links does this network have?",
        "Give every link, in the order of the description.", "Convert to links."))
    names = net["names"]
    given = rng.choice(DESCRIPTIONS[net["shape"]]).format(first=names[0], rest=listed(names[1:]))
    return question, given, "Links: " + ", ".join(map(link, net["edges"])) + "."


def topology_shape(rng, net):
    question = rng.choice((
        "Describe the shape of this network.", "What shape do these links form?",
        "Turn the list of links into a description.", "Say in words how the nodes are arranged.",
        "How is this network laid out?", "Convert the links to a short description."))
    names = net["names"]
    given = "Links: " + ", ".join(map(link, net["edges"])) + "."
    start = {"star": f"A star: {names[0]} with ", "chain": f"A chain: {names[0]}, ", "ring": f"A ring: {names[0]}, "}
    return question, given, start[net["shape"]] + ", ".join(names[1:]) + "."


TASKS = {
    "explain": (explain_link, explain_role, explain_metric),
    "reasoning": (reasoning_delay, reasoning_failure, reasoning_path),
    "topology": (topology_links, topology_shape),
}


def make_network(rng):
    shape = rng.choice(("star", "chain", "ring"))
    names = pick_names(rng, rng.choice((4, 4, 5)))
    edges = edges_of(shape, names)
    delays = dict(zip(edges, rng.sample(range(2, 100), len(edges))))
    return {"shape": shape, "names": names, "edges": edges, "delays": delays}


def make_records(rng, count, used):
    """`count` records, the kinds in turn; no network is in `used` or comes twice."""
    records = []
    for index in range(count):
        kind = KINDS[index % len(KINDS)]
        task = TASKS[kind][index // len(KINDS) % len(TASKS[kind])]
        while True:
            net = make_network(rng)
            key = frozenset(frozenset(edge) for edge in net["edges"])
            if key not in used:
                break
        used.add(key)
        instruction, given, output = task(rng, net)
        records.append({"instruction": instruction, "input": given, "output": output, "difficulty": kind})
    rng.shuffle(records)
    return records


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--train", type=int, default=804, help="records of the training part")
    parser.add_argument("--test", type=int, default=60, help="records of the held-back part")
    parser.add_argument("--out", default=here, help="folder to write to")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the files there differ")
    options = parser.parse_args()
    rng, used = random.Random(options.seed), set()
    for part, count in (("test", options.test), ("train", options.train)):
        lines = (json.dumps(record, ensure_ascii=False) for record in make_records(rng, count, used))
        text = "[\n" + ",\n".join(lines) + "\n]\n"
        path = os.path.join(options.out, f"topology_{part}.json")
        if options.check:
            with open(path, encoding="utf-8") as file:
                if file.read() != text:
                    sys.exit(f"{path} is not what this script writes")
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)


if __name__ == "__main__":
    main()
