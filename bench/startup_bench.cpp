// From a model on disk to one that can compute, with its files in the page cache.
//
//   bench_startup MODEL [--benchmark_...]
//
// MODEL is a folder or a .gguf file. `model` opens it and sets the decoder up on the mapped weights, `adapter` does the
// same with an adapter of rank 16 on every projection, `tokenizer` loads what turns text into tokens, where it is
// there.

#include <memory>
#include <optional>
#include <string>

#include "lora/inputs/model_files.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "report.hpp"

namespace {

using namespace lora;

template <class T>
std::unique_ptr<model::Decoder<bench::D, T>> open(const std::string& path) {
  const auto source = model::Source::open(path);
  return std::make_unique<model::Decoder<bench::D, T>>(bench::device(), source);
}

template <class T>
void add_all(const std::string& path) {
  bench::add_benchmark(concat("model/", bench::type_name<T>), [=](benchmark::State& state) {
    for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(open<T>(path)->config().hidden_size);
  });
  bench::add_benchmark(concat("adapter/", bench::type_name<T>), [=](benchmark::State& state) {
    for ([[maybe_unused]] auto iteration : state) {
      const auto decoder = open<T>(path);
      model::AdapterConfig adapter;
      adapter.rank = 16;
      adapter.alpha = 32;
      decoder->attach(bench::device(), adapter);
      model::init_adapter(bench::device(), *decoder, 1);
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]).substr(0, 2) == "--") {
    std::fputs("usage: bench_startup MODEL [--benchmark_...]\n", stderr);
    return 2;
  }
  const std::string path = argv[1];
  argv[1] = argv[0];
  return lora::bench::benchmark_main(argc - 1, argv + 1, [&] {
    add_all<float>(path);
    add_all<lora::bf16>(path);
    if (inputs::find_tokenizer(path))
      bench::add_benchmark("tokenizer", [=](benchmark::State& state) {
        for ([[maybe_unused]] auto iteration : state)
          benchmark::DoNotOptimize(inputs::find_tokenizer(path)->vocab_size());
      });
  });
}
