#!/usr/bin/env python3
"""How fast answers come, token by token, beside llama.cpp and beside the memory's bandwidth.

  bench/decoding.py MODEL.gguf… [--lora build/release/bin/lora] [--threads 1,2] [--tokens 128] [--rounds 3]
      [--limits build/release/bin/bench_limits]

Both continue one question greedily by --tokens tokens, in turn; what is timed of both are the tokens behind the first. A token reads every weight once, so its bytes (all tensors of the file but the
embedding, of which a row is read, where the head is apart) by tokens per second are the bandwidth that is used. --limits
prints what the memory reaches (a = b + s c) with as many threads, before each. Needs gguf, and for llama.cpp either
llama-cpp-python, which compiles it for this machine, or xllamacpp, which brings it compiled: its answer's time is the
server's own.
Files of other types: `lora export --outtype f32` and the like; of Q4_K_M: llama.cpp's quantize.
"""
import argparse
import json
import subprocess
import time

QUESTION = "Write a long story about a lighthouse, its keeper and the sea."


def weight_bytes(path):
    from gguf import GGUFReader
    tensors = {tensor.name: int(tensor.n_bytes) for tensor in GGUFReader(path).tensors}
    return sum(tensors.values()) - (tensors["token_embd.weight"] if "output.weight" in tensors else 0)


def ours(args, model, threads):
    words = [args.lora, "chat", "--jsonl", "--model_name_or_path", model, "--threads", str(threads)]
    line = json.dumps({"role": "user", "content": QUESTION}) + "\n"

    def answer(tokens):
        # The first answer finds the weights on disk or in the system's cache, and prepares its products.
        done = subprocess.run([*words, "--max_new_tokens", str(tokens)], input=2 * line, capture_output=True, text=True,
                              check=True)
        told = json.loads(done.stdout.splitlines()[-1])
        return told["tokens"], told["tokens"] / told["tokens_per_second"]

    (count, whole), (_, first) = answer(args.tokens), answer(1)  # the first token comes with the question
    return count, (count - 1) / (whole - first)


def other(args, model, threads):
    try:
        from llama_cpp import Llama
    except ImportError:
        return other_compiled(args, model, threads)
    llama = Llama(model, n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False)
    ids = llama.tokenize(QUESTION.encode(), add_bos=False)
    for _ in range(2):
        llama.reset()
        count = 0
        for token in llama.generate(ids, temp=0.0, repeat_penalty=1.0):
            count += 1
            if count == 1:
                begin = time.perf_counter()
            if count == args.tokens or token == llama.token_eos():
                break
        speed = (count - 1) / (time.perf_counter() - begin)
    return count, speed


def other_compiled(args, model, threads):
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.verbosity = model, 2048, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    asked = {"prompt": QUESTION, "n_predict": args.tokens, "temperature": 0.0, "cache_prompt": False,
             "ignore_eos": True}
    for _ in range(2):
        timings = server.handle_completions(asked)["timings"]
    return timings["predicted_n"], timings["predicted_per_second"]


def bandwidth(args, threads):
    if not args.limits:
        return None
    text = subprocess.run([args.limits, str(threads)], capture_output=True, text=True, check=True).stdout
    return json.loads(text)["gb_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--lora", default="build/release/bin/lora")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limits")
    args = parser.parse_args()
    if args.tokens < 2:
        parser.error("--tokens: at least 2, since the first comes with the question")
    print("model  threads  lora tok/s  llama.cpp tok/s  ratio  lora GB/s  of the memory's")
    for model in args.models:
        size = weight_bytes(model)
        for threads in map(int, args.threads.split(",")):
            for _ in range(args.rounds):
                limit = bandwidth(args, threads)
                _, mine = ours(args, model, threads)
                _, theirs = other(args, model, threads)
                used = size * mine / 1e9
                share = f"{used / limit:.2f}" if limit else "-"
                print(f"{model.rsplit('/', 1)[-1]}  {threads}  {mine:.1f}  {theirs:.1f}  {mine / theirs:.2f}  "
                      f"{used:.1f}  {share}", flush=True)


if __name__ == "__main__":
    main()
