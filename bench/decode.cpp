// How fast a model reads a prompt and answers, beside what this machine reaches at best, as one JSON object:
//   bench_decode MODEL [THREADS]
// Of several rounds in turn the fastest of each. A step's bytes are those of the weights as they are stored, once.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "lora/decode/session.hpp"
#include "lora/forecast/limits.hpp"
#include "lora/inputs/find_model.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/model/weights/weights.hpp"

namespace {

using namespace lora;
using Device = cpu::Device;
using Decoder = model::Decoder<Device, float>;
using Session = decode::Session<Device, float>;

constexpr Index prompt = 512, behind = 2048;
constexpr int steps = 32, rounds = 5;

double seconds(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<std::int32_t> text(const Decoder& decoder, Index count) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(decoder.config().vocab_size));
  return ids;
}

/// Sequences that are continued together, behind `length` tokens each.
class Answers {
 public:
  Answers(Device& dev, Decoder& decoder, int count, Index length) : session_(dev, decoder) {
    const auto ids = text(decoder, length);
    for (int i = 0; i < count; ++i) {
      sequences_.push_back(session_.enter(length + steps + 1));
      session_.append(sequences_.back(), ids);
    }
    session_.step();
    length_ = length;
  }
  /// Seconds of a step.
  double time() {
    const double all = seconds([&] {
      for (int i = 0; i < steps; ++i) {
        for (const auto sequence : sequences_) session_.append(sequence, std::vector<std::int32_t>{i});
        session_.step();
      }
    });
    for (const auto sequence : sequences_) session_.truncate(sequence, length_);
    return all / steps;
  }

 private:
  Session session_;
  std::vector<decode::Sequence> sequences_{};
  Index length_ = 0;
};

int run(const char* path, int threads) {
  Device dev(threads);
  const auto source = model::Source::open(inputs::find_model(path));
  const auto limits = forecast::measure_limits(dev);
  Decoder plain(dev, source), eight(dev, source), sixteen(dev, source);
  eight.attach(dev, {.rank = 8});
  sixteen.attach(dev, {.rank = 16});

  double numbers = 0, bytes = 0;  // of the matrices of layers, and of all that an answer's tokens are multiplied by
  for (const auto& tensor : source.tensors()) {
    const bool table = tensor.name == "token_embd.weight" || tensor.name.ends_with("embed_tokens.weight");
    const bool head = tensor.name == "output.weight" || tensor.name == "lm_head.weight";
    if (tensor.shape.rank() < 2 || (table && !plain.config().tie_word_embeddings)) continue;
    if (!table && !head) numbers += static_cast<double>(tensor.shape.count());
    bytes += static_cast<double>(tensor.bytes.size());
  }

  const auto ids = text(plain, prompt);
  Answers one(dev, plain, 1, 64), late(dev, plain, 1, behind), together(dev, plain, 8, 64);
  Answers with_8(dev, eight, 1, 64), with_16(dev, sixteen, 1, 64);
  struct Row {
    const char* name;
    double best;
  } rows[] = {{"prompt", 1e9},    {"step", 1e9},        {"step_behind_2048", 1e9},
              {"step_of_8", 1e9}, {"step_rank_8", 1e9}, {"step_rank_16", 1e9}};
  for (int round = 0; round < rounds; ++round) {
    const double taken[] = {seconds([&] {
                              Session session(dev, plain, prompt);
                              session.append(session.enter(prompt), ids);
                              session.step();
                            }),
                            one.time(),
                            late.time(),
                            together.time(),
                            with_8.time(),
                            with_16.time()};
    for (std::size_t i = 0; i < std::size(rows); ++i) rows[i].best = std::min(rows[i].best, taken[i]);
  }
  std::printf("{\"threads\": %d, \"weight_bytes\": %.0f, \"gb_per_second\": %.1f, \"f32_gflops\": %.1f", dev.threads(),
              bytes, limits.gb_per_second, limits.f32_gflops);
  for (const Row& row : rows) std::printf(", \"%s_ms\": %.3f", row.name, row.best * 1e3);
  std::printf(", \"prompt_tokens_per_second\": %.1f, \"prompt_of_product_limit\": %.3f", prompt / rows[0].best,
              2 * numbers * prompt / rows[0].best / 1e9 / limits.f32_gflops);
  std::printf(", \"tokens_per_second\": %.1f, \"of_bandwidth\": %.3f, \"batch_of_8_speedup\": %.2f", 1 / rows[1].best,
              bytes / rows[1].best / 1e9 / limits.gb_per_second, 8 * rows[1].best / rows[3].best);
  std::printf(", \"rank_8_slower\": %.3f, \"rank_16_slower\": %.3f}\n", rows[4].best / rows[1].best - 1,
              rows[5].best / rows[1].best - 1);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 0;
  if (argc == 3) std::from_chars(argv[2], argv[2] + std::strlen(argv[2]), threads);
  if (argc < 2 || argc > 3 || (argc == 3 && threads < 1)) {
    std::fputs("usage: bench_decode MODEL [THREADS]\n", stderr);
    return 2;
  }
  try {
    return run(argv[1], threads);
  } catch (const lora::Error& error) {
    std::fprintf(stderr, "bench_decode: %s\n", error.what());
    return 1;
  }
}
