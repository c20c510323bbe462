// From files to batches: finding the records of a data file, reading them, laying them end to end, and weights from a
// safetensors file. Files are made in a temporary folder and are in the page cache when they are read.

#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "lora/data/sampling/order.hpp"
#include "lora/inputs/records.hpp"
#include "lora/io/formats/safetensors.hpp"
#include "report.hpp"

namespace {

using namespace lora;

class Files {
 public:
  Files() {
    std::string name = (std::filesystem::temp_directory_path() / "lora-bench-XXXXXX").native();
    if (::mkdtemp(name.data()) == nullptr) fail<IoError>("no folder can be made at ", name);
    folder_ = name;
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string chat() const { return folder_ / "chat.jsonl"; }
  std::string tokens() const { return folder_ / "tokens.jsonl"; }
  std::string weights() const { return folder_ / "model.safetensors"; }

  /// 100 MB of conversations, 20 MB of token records, 256 MB of weights.
  void write() const {
    std::string text;
    for (Index i = 0; text.size() < 100'000'000; ++i)
      text +=
          concat(R"({"messages": [{"role": "user", "content": "Question )", i,
                 R"(: how many clips were sold in April and May, if half as many were sold in May?\nThink twice."}, )",
                 R"({"role": "assistant", "content": "She sold \"24\" in May. )", std::string(300, 'x'), "\"}]}\n");
    io::write_file(chat(), text);
    text.clear();
    Random random(1);
    while (text.size() < 20'000'000) {
      std::string ids, labels;
      const std::uint32_t length = 100 + random.below(200);
      for (std::uint32_t k = 0; k < length; ++k) {
        const std::string id = std::to_string(random.below(49152));
        ids += (k > 0 ? ", " : "") + id;
        labels += (k > 0 ? ", " : "") + (k < length / 2 ? std::string("-100") : id);
      }
      text += concat("{\"input_ids\": [", ids, "], \"labels\": [", labels, "]}\n");
    }
    io::write_file(tokens(), text);
    std::vector<io::TensorDeclaration> tensors;
    for (int i = 0; i < 64; ++i) tensors.push_back({concat("layer.", i, ".weight"), DType::bf16, {1024, 2048}});
    io::SafetensorsWriter writer(weights(), tensors);
    const std::vector<std::byte> bytes(std::size_t{1024} * 2048 * 2, std::byte{0x3C});
    for (const auto& tensor : tensors) writer.add(tensor.name, bytes);
    writer.commit();
  }

 private:
  std::filesystem::path folder_;
};

double size_of(const std::string& file) { return static_cast<double>(std::filesystem::file_size(file)); }

data::Dataset open(const std::string& file) { return data::Dataset::open(std::vector<std::string>{file}); }

void add_all(const Files& files) {
  const std::string chat = files.chat(), tokens = files.tokens(), weights = files.weights();
  bench::add_benchmark("open_100_MB", [=](benchmark::State& state) {
    const bench::Clock clock;
    for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(open(chat).size());
    bench::report_bytes(state, clock, size_of(chat));
  });
  bench::add_benchmark("open_100_MB_and_read_8_records", [=](benchmark::State& state) {
    const bench::Clock clock;
    for ([[maybe_unused]] auto iteration : state) {
      const auto dataset = open(chat);
      for (Index i = 0; i < 8; ++i) benchmark::DoNotOptimize(dataset[dataset.size() - 1 - i].messages.size());
    }
    bench::report_bytes(state, clock, size_of(chat));
  });
  bench::add_benchmark("fingerprint_100_MB", [=](benchmark::State& state) {
    const auto dataset = open(chat);
    const bench::Clock clock;
    for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(dataset.fingerprint());
    bench::report_bytes(state, clock, size_of(chat));
  });
  bench::add_benchmark("read_conversations", [=](benchmark::State& state) {
    const auto dataset = open(chat);
    const Index count = std::min<Index>(dataset.size(), 20000);
    const bench::Clock clock;
    for ([[maybe_unused]] auto iteration : state)
      for (Index i = 0; i < count; ++i) benchmark::DoNotOptimize(dataset[i].messages.size());
    bench::report_bytes(state, clock, size_of(chat) * static_cast<double>(count) / static_cast<double>(dataset.size()));
  });
  bench::add_benchmark("token_records_to_batches_of_8", [=](benchmark::State& state) {
    const inputs::Records records(open(tokens), data::Encoder(nullptr, std::nullopt, data::EncodeOptions{}));
    std::vector<Index> all(static_cast<std::size_t>(records.size()));
    std::iota(all.begin(), all.end(), Index{0});
    data::Order order(all, 1, true);
    double rows = 0;
    const bench::Clock clock;
    for ([[maybe_unused]] auto iteration : state)
      for (const auto& batch : records.micro_batches(order.between(0, records.size()), {.sequences = 8}))
        rows += static_cast<double>(batch.rows());
    bench::report_bytes(state, clock, size_of(tokens));
    state.counters["Mtoken/s"] = 1e-6 * rows / static_cast<double>(state.iterations()) / clock.seconds(state);
  });
  bench::add_benchmark("open_weights", [=](benchmark::State& state) {
    for ([[maybe_unused]] auto iteration : state)
      benchmark::DoNotOptimize(io::Safetensors::open(weights).tensors().size());
  });
  bench::add_benchmark("open_weights_and_read_all", [=](benchmark::State& state) {
    auto& dev = bench::device();
    const bench::Clock clock;
    for ([[maybe_unused]] auto iteration : state) {
      const auto file = io::Safetensors::open(weights);
      const auto& tensors = file.tensors();
      std::vector<std::uint64_t> sums(tensors.size());
      dev.parallel_items(static_cast<Index>(tensors.size()), [&](Index i) {
        const auto bytes = tensors[static_cast<std::size_t>(i)].bytes;
        std::uint64_t sum = 0;
        for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
          std::uint64_t word;
          std::memcpy(&word, bytes.data() + at, sizeof word);
          sum += word;
        }
        sums[static_cast<std::size_t>(i)] = sum;
      });
      benchmark::DoNotOptimize(sums.data());
    }
    bench::report_bytes(state, clock, size_of(weights));
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<Files> files;
  return lora::bench::benchmark_main(argc, argv, [&] {
    files = std::make_unique<Files>();
    files->write();
    add_all(*files);
  });
}
