// What putting a step's sequences together by length brings: micro-batches per step, and how full they are, beside
// those that the order of the step gives; and how long it takes.
//
//   bench_grouping [LENGTHS_FILE] [--benchmark_...]
//
// LENGTHS_FILE holds numbers of tokens, a record each; without one they are drawn from a log-normal distribution with a
// median of 245, as chat data have.

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "lora/data/batches/grouping.hpp"
#include "lora/io/files/file.hpp"
#include "report.hpp"

namespace {

using namespace lora;

std::vector<Index> drawn_lengths() {
  std::vector<Index> lengths;
  Random random(1);
  for (int i = 0; i < 4096; ++i) {
    double sum = 0;  // of twelve uniform numbers: nearly normal, with a variance of 1
    for (int k = 0; k < 12; ++k) sum += static_cast<double>(random.uniform());
    lengths.push_back(std::min<Index>(2048, static_cast<Index>(std::exp(5.5 + 0.8 * (sum - 6)))));
  }
  return lengths;
}

std::vector<Index> lengths_of(const std::string& file) {
  std::vector<Index> lengths;
  const std::string text = io::read_file(file);
  char* end = nullptr;
  for (const char* at = text.c_str();; at = end) {
    const long number = std::strtol(at, &end, 10);
    if (end == at) break;
    lengths.push_back(number);
  }
  if (lengths.empty()) fail<FormatError>(file, ": no numbers");
  return lengths;
}

/// Micro-batches of all steps, and tokens of the smallest of a step on average and of the largest of all.
struct Count {
  double batches = 0, smallest = 0, largest = 0;

  void add(const data::Groups& groups, std::span<const Index> lengths) {
    std::vector<Index> tokens;
    for (const auto& group : groups) {
      tokens.push_back(0);
      for (const Index i : group) tokens.back() += lengths[static_cast<std::size_t>(i)];
    }
    batches += static_cast<double>(tokens.size());
    smallest += static_cast<double>(*std::min_element(tokens.begin(), tokens.end()));
    largest = std::max(largest, static_cast<double>(*std::max_element(tokens.begin(), tokens.end())));
  }
};

void add(const std::vector<Index>& lengths, std::size_t sequences, Index limit) {
  bench::add_benchmark(concat("sequences_", sequences, "/tokens_", limit), [=](benchmark::State& state) {
    Count in_order, grouped;
    const std::size_t steps = lengths.size() / sequences;
    for ([[maybe_unused]] auto iteration : state) {
      in_order = grouped = {};
      for (std::size_t step = 0; step < steps; ++step) {
        const auto part = std::span(lengths).subspan(step * sequences, sequences);
        in_order.add(data::detail::fill_in_order(part, limit).groups, part);
        grouped.add(data::group_by_tokens(part, limit), part);
      }
    }
    const auto per_step = [&](double sum) { return sum / static_cast<double>(steps); };
    state.counters["batches"] = per_step(grouped.batches);
    state.counters["batches_in_order"] = per_step(in_order.batches);
    state.counters["smallest"] = per_step(grouped.smallest);
    state.counters["smallest_in_order"] = per_step(in_order.smallest);
    state.counters["largest"] = grouped.largest;
    state.counters["largest_in_order"] = in_order.largest;
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::string file;
  if (argc > 1 && std::string_view(argv[1]).substr(0, 2) != "--") {
    file = argv[1];
    argv[1] = argv[0];
    --argc, ++argv;
  }
  return lora::bench::benchmark_main(argc, argv, [&] {
    auto lengths = file.empty() ? drawn_lengths() : lengths_of(file);
    for (const std::size_t sequences : {16u, 64u})
      for (const Index limit : {512, 1024, 2048})
        if (lengths.size() >= sequences) add(lengths, sequences, limit);
  });
}
