// Encoding and decoding text, on one thread and on all.
//
//   bench_tokenizer FOLDER [TEXT_FILE] [--benchmark_...]
//
// FOLDER holds tokenizer.json or tokenizer.model. Without TEXT_FILE the text is a mixture of prose, code, numbers and
// scripts, made longer by repetition with a running number. GB/s is of UTF-8 text; its share of the memory's bandwidth
// only tells that the two have nothing to do with each other.

#include <cstdint>
#include <string>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/tokenizer/tokenizer.hpp"
#include "report.hpp"

namespace {

using namespace lora;

constexpr std::string_view pieces[] = {
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. ",
    "How many clips did Natalia sell altogether in April and May?\n\nShe sold 48/2 = <<48/2=24>>24 clips in May.\n",
    "for (std::size_t i = 0; i < values.size(); ++i) {\n    total += static_cast<double>(values[i]) * weight;\n}\n",
    "Größere Städte wurden später gebaut; l'été dernier, où êtes-vous allés ? ",
    "快速的棕色狐狸跳过懒狗，然后回到森林里去了。",
    "Быстрая коричневая лиса перепрыгивает через ленивую собаку. ",
    "{\"instruction\": \"Name three colours.\", \"output\": \"Red, green, blue.\"}\n",
    "https://example.org/a/b?c=1&d=2  3.14159  1,024,768   \t  don't we'll 🙂🚀\n",
};

std::string mixed_text(std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; text.size() < bytes; ++i) text += concat(i, ". ", pieces[i * 5 % std::size(pieces)]);
  return text;
}

/// The text in parts of about `size` bytes that end with a line or at least with a character.
std::vector<std::string> parts_of(const std::string& text, std::size_t size) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(at + size, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    parts.push_back(text.substr(at, end - at));
    at = end;
  }
  return parts;
}

void report(benchmark::State& state, const bench::Clock& clock, std::size_t bytes, std::size_t tokens) {
  bench::report_bytes(state, clock, static_cast<double>(bytes));
  state.counters["Mtoken/s"] = 1e-6 * static_cast<double>(tokens) / clock.seconds(state);
}

void add_all(const std::string& folder, const std::string& text) {
  const auto tokenizer = std::make_shared<const tokenizer::Tokenizer>(tokenizer::Tokenizer::from_folder(folder));
  // What must be right is tested elsewhere; a wrong folder should show at once.
  const std::size_t tokens = tokenizer->encode(text).ids.size();
  bench::add_benchmark("load", [=](benchmark::State& state) {
    for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(tokenizer::Tokenizer::from_folder(folder));
  });
  bench::add_benchmark("encode/1_text", [=](benchmark::State& state) {
    const bench::Clock clock;
    for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(tokenizer->encode(text).ids.data());
    report(state, clock, text.size(), tokens);
  });
  const auto parts = std::make_shared<const std::vector<std::string>>(parts_of(text, 1000));
  for (const int threads : {1, bench::device().threads()}) {
    bench::add_benchmark(concat("encode/texts_of_1000/", threads, "_threads"), [=](benchmark::State& state) {
      cpu::Device dev(threads);
      const bench::Clock clock;
      for ([[maybe_unused]] auto iteration : state)
        dev.parallel_items(static_cast<Index>(parts->size()), [&](Index i) {
          benchmark::DoNotOptimize(tokenizer->encode((*parts)[static_cast<std::size_t>(i)]).ids.data());
        });
      report(state, clock, text.size(), tokens);
    });
    if (bench::device().threads() == 1) break;
  }
  bench::add_benchmark("decode/1_text", [=](benchmark::State& state) {
    const auto ids = tokenizer->encode(text).ids;
    const bench::Clock clock;
    for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(tokenizer->decode(ids).data());
    report(state, clock, text.size(), tokens);
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> rest{argv[0]};
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--")) {
      rest.push_back(argv[i]);
    } else {
      files.emplace_back(argv[i]);
    }
  }
  if (files.empty() || files.size() > 2) {
    std::fputs("usage: bench_tokenizer FOLDER [TEXT_FILE] [--benchmark_...]\n", stderr);
    return 2;
  }
  return lora::bench::benchmark_main(static_cast<int>(rest.size()), rest.data(), [&] {
    add_all(files[0], files.size() == 2 ? lora::io::read_file(files[1]) : mixed_text(1'000'000));
  });
}
