// Layers whose weights stay on the host: what is copied when, from where, and what blocks of GGUF become on the way.

#include "lora/model/weights/streamed_layers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/effort.hpp"
#include "support/instantiate.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_gguf.hpp"
#include "support/small_training.hpp"
#include "support/temp_folder.hpp"
#include "support/thread_ranks.hpp"

namespace streamed_layers_test {

namespace {

using namespace lora;
using namespace lora::test;
using model::WeightPlaces;
using From = WeightPlaces::From;
using Dev = proof::Device;

Subject subject_of_layers(Index layers) {
  Subject subject;
  subject.model.layers = layers;
  return subject;
}

/// What a layer of the subject takes, as it is stored.
std::size_t layer_bytes(const model::Source& source) {
  std::size_t bytes = 0;
  for (const model::TensorInfo& info : model::tensors_of(source.config())) {
    if (info.layer != 0 || info.kind != model::TensorInfo::Kind::projection) continue;
    bytes += (static_cast<std::size_t>(bytes_of(source.dtype_of(info), info.shape.count())) + 63) / 64 * 64;
  }
  return bytes;
}

/// Layers of one matrix (1, 16) of numbers, layer by layer 0, 1, …
class Numbers {
 public:
  Numbers(Dev& dev, Index layers, const WeightPlaces& places) : streamed(dev, layers, places), dev_(dev) {
    for (Index layer = 0; layer < layers; ++layer) {
      auto values = std::make_shared<std::vector<float>>(16, static_cast<float>(layer));
      model::ProvidedTensor tensor{DType::f32, std::as_bytes(std::span(*values)), values, 0};
      weights_.push_back(streamed.add(layer, model::HostMatrix(tensor, 1, 16)));
    }
    taken = streamed.build();
  }

  /// The layer's numbers while it is acquired.
  void read(Index layer, Index next) {
    const nn::LayerHandle<Dev> handle(&streamed, dev_, layer, next);
    const auto use = weight(layer).use(dev_);
    kernel::decode(dev_, use.view(), target_.view());
    kernel::convert(dev_, target_.view(), sums_.view(), static_cast<double>(++reads_), true);
    expected_ += static_cast<float>(layer) * static_cast<float>(reads_);
  }
  nn::Weight<Dev>& weight(Index layer) { return weights_[static_cast<std::size_t>(layer)]; }
  /// Whether all that was read was right.
  void check() { CHECK(to_host(dev_, sums_.view()) == std::vector<float>(16, expected_)); }

  model::StreamedLayers<Dev> streamed;
  model::LayerStreaming taken;

 private:
  Dev& dev_;
  std::vector<nn::Weight<Dev>> weights_;
  Tensor<Dev, float> target_{dev_, 1, 16}, sums_ = tensor_of<float>(dev_, zeros_, 1, 16);
  int reads_ = 0;
  float expected_ = 0;
  inline static const std::vector<float> zeros_ = std::vector<float>(16, 0.0f);
};

/// Random blocks that are numbers.
std::vector<std::byte> random_blocks(DType dtype, Index count, std::uint64_t seed) {
  Random random(seed);
  std::vector<double> values;
  for (Index i = 0; i < count; ++i) values.push_back(2 * static_cast<double>(random.uniform()) - 1);
  return encode(values, dtype);
}

constexpr DType block_types[] = {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0,
                                 DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k};

template <class T>
void check_decoded(DType dtype) {
  CAPTURE(name_of(dtype));
  constexpr Index rows = 6, cols = 512;
  const auto bytes = random_blocks(dtype, rows * cols, 3);
  cpu::Device dev(2);
  const auto matrix =
      model::HostMatrix::decoded<T>(model::ProvidedTensor{dtype, std::span(bytes), nullptr, 0}, rows, cols);
  CHECK(matrix.dtype() == dtype_of<T>);
  CHECK(matrix.bytes() == rows * cols * sizeof(T));
  std::vector<T> written(rows * cols);
  matrix.write(dev, reinterpret_cast<std::byte*>(written.data()));
  Tensor<cpu::Device, T> decoded(dev, rows, cols);
  kernel::decode(dev, StoredView<cpu::Device>(bytes.data(), dtype, rows, cols), decoded.view());
  CHECK(std::memcmp(written.data(), decoded.view().data(), matrix.bytes()) == 0);
}

}  // namespace

TEST_CASE("streamed layers: the next one is under way before this one is worked on, and none is copied without need") {
  for (const From from : {From::memory, From::files})
    for (const int slots : {2, 3}) {
      CAPTURE(static_cast<int>(from));
      CAPTURE(slots);
      Dev dev(1, {.late_sources = true});
      Numbers numbers(dev, 6, {.streams_layers = true, .slots = slots, .from = from, .threads = 1});
      const auto copies = [&](const auto& f) {
        const auto before = dev.counts();
        f();
        CHECK((dev.counts() - before).bytes_beside == 64 * (dev.counts() - before).copies_in);
        return (dev.counts() - before).copies_in;
      };
      numbers.streamed.acquire(dev, 0, 1);
      CHECK(dev.counts().bytes_beside == 2 * 64);
      CHECK(copies([&] { numbers.streamed.release(dev, 0); }) == 0);
      const auto forward = [&](Index after) {
        for (Index layer = 0; layer < 6; ++layer) numbers.read(layer, layer < 5 ? layer + 1 : after);
      };
      const auto backward = [&] {
        for (Index layer = 5; layer >= 0; --layer) numbers.read(layer, layer > 0 ? layer - 1 : 0);
      };
      const auto room = static_cast<std::size_t>(slots);
      CHECK(copies([&] { forward(5); }) == 6 - 2);
      for (int i = 0; i < 3; ++i) {
        CHECK(copies(backward) == 6 - room);
        CHECK(copies([&] { forward(5); }) == 6 - room);
      }
      CHECK(copies(backward) == 6 - room);
      CHECK(copies([&] { forward(0); }) == 6 - room + 1);  // with the next pass's first
      for (int i = 0; i < 3; ++i) CHECK(copies([&] { forward(0); }) == 6);
      CHECK(copies([&] { forward(5); }) == 6 - 1);
      // Single tensors.
      for (Index layer = 0; layer < 3; ++layer) {
        CAPTURE(layer);
        CHECK(copies([&] {
                for (int i = 0; i < 4; ++i) numbers.read(layer, -1);
              }) == 1);
      }
      numbers.check();
    }
}

TEST_CASE("streamed layers: all of them fit, and are copied once") {
  Dev dev(1, {.late_sources = true});
  Numbers numbers(dev, 3, {.streams_layers = true, .slots = 4, .threads = 1});
  for (int i = 0; i < 5; ++i)
    for (const Index layer : {0, 1, 2, 2, 1, 0}) numbers.read(layer, -1);
  numbers.check();
  CHECK(dev.counts().bytes_beside == 3 * 64);
}

TEST_CASE("streamed layers: any order gives each layer's numbers, however far the device is behind") {
  struct Case {
    From from;
    int slots, buffers;
  };
  for (const Case& c : {Case{From::memory, 2, 3}, Case{From::files, 2, 3}, Case{From::files, 1, 1},
                        Case{From::files, 2, 1}, Case{From::files, 4, 2}, Case{From::memory, 1, 1}}) {
    CAPTURE(static_cast<int>(c.from));
    CAPTURE(c.slots);
    CAPTURE(c.buffers);
    Dev dev(1, {.late_sources = true});
    Numbers numbers(dev, 7,
                    {.streams_layers = true, .slots = c.slots, .buffers = c.buffers, .from = c.from, .threads = 1});
    Random random(5);
    Index next = 0;
    for (int i = 0; i < 200; ++i) {
      const Index layer = random.below(4) == 0 ? static_cast<Index>(random.below(7)) : next;
      next = random.below(2) == 0 ? (layer + 1) % 7 : (layer + 6) % 7;
      if (i % 20 == 0) dev.hold(i % 40 == 0 ? Stream::copy : Stream::compute);
      numbers.read(layer, random.below(8) == 0 ? -1 : next);
    }
    numbers.check();
  }
}

TEST_CASE("streamed layers: a weight whose layer nobody has acquired can't be read") {
  Dev dev(1);
  Numbers numbers(dev, 3, {.streams_layers = true, .threads = 1});
  const auto read = [&](Index layer) { return message_of<DeviceError>([&] { (void)numbers.weight(layer).use(dev); }); };
  const std::string refusal =
      "[weight] a matrix (1, 16) is read while it is not on the device; expected its layer to be acquired before";
  CHECK(read(1) == refusal);
  {
    const nn::LayerHandle<Dev> handle(&numbers.streamed, dev, 1, 2);
    CHECK(read(1) == "nothing was thrown");
    CHECK(read(2) == refusal);  // though it is on its way
  }
  CHECK(read(1) == refusal);
}

TEST_CASE("streamed layers: they lie in page-locked memory where half of what is available holds them") {
  Dev dev(1);
  const auto taken = [&](WeightPlaces places) {
    places.streams_layers = true;
    places.threads = 1;
    return Numbers(dev, 10, places).taken;
  };
  const auto resident = taken({.memory = 2 * 640});
  CHECK(resident.from == From::memory);
  CHECK(resident.layers == 640);
  CHECK(resident.host == 640);
  CHECK(resident.device == 2 * 64);
  const auto staged = taken({.slots = 3, .buffers = 4, .memory = 2 * 640 - 1});
  CHECK(staged.from == From::files);
  CHECK(staged.layers == 640);
  CHECK(staged.host == 4 * 64);
  CHECK(staged.device == 3 * 64);
  CHECK(taken({.from = From::files, .memory = 4000}).from == From::files);
  CHECK_THROWS_WITH_AS(taken({.memory = 3 * 64 - 1}),
                       "key offload: to stream the layers 0.0 MiB of the host's memory are needed, but 0.0 MiB are "
                       "available; allowed: none or optimizer",
                       ConfigError);
  Dev small(1, {.host_memory = 5 * 64});
  for (const From from : {From::memory, From::files})
    CHECK_THROWS_WITH_AS(
        Numbers(small, 10, {.streams_layers = true, .buffers = 6, .from = from}),
        doctest::Contains("of page-locked memory, to stream the layers, can't be had: [proof] out of page-locked "
                          "memory: 64 bytes"),
        DeviceError);
}

TEST_CASE("streamed layers: a step copies what its passes need anew, waits once and allocates nothing") {
  for (const std::pair<Index, int>& c : {std::pair<Index, int>{5, 2}, {4, 3}, {2, 2}})
    for (const Index recomputed : {0, 5}) {
      const Index layers = c.first;
      const int slots = c.second;
      CAPTURE(layers);
      CAPTURE(slots);
      CAPTURE(recomputed);
      Subject subject = subject_of_layers(layers);
      subject.recomputed = recomputed;
      const TempFolder folder = TempFolder::in_memory();
      write_random_model(folder / "model", subject.model);
      const auto source = model::Source::open(folder / "model");
      const std::size_t each = layer_bytes(source), all = static_cast<std::size_t>(layers),
                        anew = static_cast<std::size_t>(layers - slots);
      Dev dev(2, {.late_sources = true});
      Training<Dev, float> training(dev, source, subject,
                                    {.streams_layers = true, .slots = slots, .from = From::memory, .threads = 1});
      CHECK(training.decoder().streaming()->layers == all * each);
      Outcome outcome;
      const auto counted = [&](const auto& f) {
        const proof::Counts before = dev.counts();
        f();
        return dev.counts() - before;
      };
      training.run(0, 2, outcome);
      for (Index step = 2; step < 4; ++step) {
        const auto counts = counted([&] { training.run(step, step + 1, outcome); });
        CHECK(counts.bytes_beside == micro_batches * 2 * anew * each);
        CHECK(counts.copies_in == micro_batches * (1 + 2 * anew));
        CHECK(counts.waits == 1);
        CHECK(counts.allocations == 0);
      }
      if (layers <= slots) continue;
      // An evaluation, and the step after it, which begins at the bottom as well.
      const auto evaluation = counted([&] { training.evaluate(outcome); });
      CHECK(evaluation.bytes_beside == (anew + 1) * each);
      const auto next = counted([&] { training.run(4, 5, outcome); });
      CHECK(next.bytes_beside == (all - 1 + anew + 2 * anew) * each);
      // Only the upper two layers train: backward ends there.
      training.train_layers(concat(layers - 2, layers - 1));
      training.run(5, 6, outcome);
      if (slots == 2) CHECK(counted([&] { training.run(6, 7, outcome); }).bytes_beside == micro_batches * all * each);
    }
}

TEST_CASE("streamed layers: from files the host waits for what it must, and everything else is the same") {
  const Subject subject = subject_of_layers(5);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  Dev dev(2, {.late_sources = true});
  Training<Dev, float> training(dev, source, subject, {.streams_layers = true, .from = From::files, .threads = 2});
  Outcome outcome;
  training.run(0, 2, outcome);
  const proof::Counts before = dev.counts();
  training.run(2, 3, outcome);
  const proof::Counts step = dev.counts() - before;
  CHECK(step.bytes_beside == micro_batches * 2 * 3 * layer_bytes(source));
  CHECK(step.waits <= 1 + micro_batches * 2 * 3);
  CHECK(step.allocations == 0);
}

TEST_CASE("streamed layers: a model's tensors are read layer by layer, each copied once") {
  const Subject subject = subject_of_layers(4);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  Dev dev(1, {.late_sources = true});
  const auto values = [&](const WeightPlaces& places) {
    model::Decoder<Dev, float> decoder(dev, source, places);
    decoder.attach(dev, {});
    model::init_adapter(dev, decoder, 7);
    std::vector<std::vector<float>> all;
    for (const model::TensorInfo& info : model::tensors_of(source.config())) {
      const Arena::Scope scope(dev.arena());
      all.push_back(to_host(dev, decoder.value(dev, info)));
    }
    return all;
  };
  const auto expected = values({});
  const std::size_t before = dev.counts().bytes_beside;
  CHECK(values({.streams_layers = true, .from = From::memory}) == expected);
  CHECK(dev.counts().bytes_beside - before == 4 * layer_bytes(source));
  // Memory that is left keeps more of them, and is told.
  const std::size_t each = layer_bytes(source);
  model::Decoder<Dev, float> decoder(dev, source, {.streams_layers = true, .from = From::memory});
  CHECK(decoder.streaming()->device == 2 * each);
  CHECK(decoder.keep_layers(each - 1) == 0);
  CHECK(decoder.keep_layers(each) == each);
  CHECK(decoder.keep_layers(3 * each) == each);  // which are all
  CHECK(decoder.streaming()->device == 4 * each);
  CHECK_FALSE(decoder.gathers_layers());
}

TEST_CASE("streamed layers: a device that reads the host's memory has nothing to stream") {
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", RandomModel{});
  const auto source = model::Source::open(folder / "model");
  cpu::Device dev(1);
  CHECK_THROWS_WITH_AS(
      (model::Decoder<cpu::Device, float>(dev, source, {.streams_layers = true})),
      "key offload: params and all stream layers to a device with memory of its own, but this one reads them "
      "in the host's; allowed: none or optimizer",
      ConfigError);
}

TEST_CASE("host matrix: blocks become the numbers that a device makes of them, to the bit") {
  for (const DType dtype : block_types) {
    check_decoded<float>(dtype);
    check_decoded<bf16>(dtype);
  }
}

namespace {

/// A model of a GGUF file, with blocks decoded by the host or by the device: whether its layers are on the device, or
/// come in either way, is the same.
template <class T>
void check_gguf(const std::string& family, DType dtype) {
  CAPTURE(family);
  CAPTURE(name_of(dtype));
  Subject subject;
  subject.model.family = family;
  subject.model.layers = 3;
  subject.model.hidden = 256;
  subject.model.ffn = 64;
  subject.model.head_dim = 8;
  if (family == "llama")
    for (const char* biases : {"attention_bias", "mlp_bias"}) subject.model.more[biases] = true;
  const TempFolder folder = TempFolder::in_memory();
  write_gguf(folder / "model.gguf", subject.model, random_tensors(subject.model), dtype);
  const auto source = model::Source::open(folder / "model.gguf");
  Dev dev(2, {.late_sources = true});
  const auto run = [&](const WeightPlaces& places) {
    Training<Dev, T> training(dev, source, subject, places);
    // The type is the run's wherever blocks were.
    CHECK((training.decoder().head().weight().stored().dtype() == dtype_of<T>) == *places.host_decodes);
    Outcome outcome;
    training.run(0, 2, outcome);
    training.finish(folder / "end", outcome);
    return outcome;
  };
  // Matrices are what the device would have made of the same blocks.
  const auto values = [&](bool host_decodes) {
    model::Decoder<Dev, T> decoder(dev, source, {.host_decodes = host_decodes, .threads = 1});
    std::vector<std::vector<T>> all;
    for (const model::TensorInfo& info : model::tensors_of(source.config())) {
      const Arena::Scope scope(dev.arena());
      auto& rounded = all.emplace_back();
      for (const float value : to_host(dev, decoder.value(dev, info))) rounded.push_back(T(value));
    }
    return all;
  };
  const auto by_device = values(false), by_host = values(true);
  for (std::size_t i = 0; i < by_device.size(); ++i)
    CHECK(std::memcmp(by_device[i].data(), by_host[i].data(), by_host[i].size() * sizeof(T)) == 0);
  const Outcome expected = run({.host_decodes = true, .threads = 1});
  for (const From from : {From::memory, From::files}) {
    CAPTURE(static_cast<int>(from));
    check_same(run({.streams_layers = true, .from = from, .host_decodes = true, .threads = 2}), expected);
  }
  check_same(run({.streams_layers = true, .from = From::files, .host_decodes = false, .threads = 1}),
             run({.host_decodes = false}));
}

}  // namespace

TEST_CASE("streamed layers: blocks that the host decodes give the same bits on the device and on their way to it") {
  for (const DType dtype : {DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k}) {
    const bool first = dtype == DType::q8_0, second = dtype == DType::q4_k;
    constexpr auto left_out = "streamed layers: two of four types of blocks, and of the others one of two models";
    if (test::effort(true, first, left_out)) check_gguf<float>("llama", dtype);  // whose files permute q and k
    if (test::effort(true, second, left_out)) check_gguf<bf16>("qwen3", dtype);
  }
  // Unless told otherwise, layers that must be decoded come from the files.
  const RandomModel shape{.hidden = 32, .ffn = 32, .kv_heads = 4, .head_dim = 8};
  const TempFolder folder = TempFolder::in_memory();
  write_gguf(folder / "model.gguf", shape, random_tensors(shape), DType::q8_0);
  const auto source = model::Source::open(folder / "model.gguf");
  Dev dev(1);
  for (const bool decodes : {false, true}) {
    const model::Decoder<Dev, bf16> decoder(dev, source, {.streams_layers = true, .host_decodes = decodes});
    CHECK((decoder.streaming()->from == From::files) == decodes);
    CHECK((decoder.streaming()->layers == 2 * 7 * 32 * 32 * sizeof(bf16)) == decodes);
  }
}

TEST_CASE("streamed_layers: only Q8_0 is split into planes") {
  const std::vector<std::byte> bytes(1024);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::q4_0, DType::q4_k, DType::q6_k}) {
    CAPTURE(name_of(dtype));
    CHECK(message_of<FormatError>([&] {
            (void)model::HostMatrix::split(
                {dtype, std::span(bytes).first(static_cast<std::size_t>(bytes_of(dtype, 256)))}, 1, 256);
          }) == concat("[host_matrix] a matrix of ", name_of(dtype), " has no planes; Q8_0 was expected"));
  }
  CHECK_NOTHROW(model::HostMatrix::split({DType::q8_0, std::span(bytes).first(34)}, 1, 32));
}

namespace {

/// A device that can be told that its memory is short.
struct ShortDevice : Dev {
  using Dev::Dev;
  bool gives_back() { return relieve(); }
};

}  // namespace

TEST_CASE("streamed layers: memory that is left keeps more of them, and is given back, the longest unused first") {
  ShortDevice dev(1, proof::Settings{.late_sources = true});
  const Quiet quiet;
  Numbers numbers(dev, 6, {.streams_layers = true, .slots = 2, .from = From::memory, .threads = 1});
  const auto copies = [&](std::initializer_list<Index> layers) {
    const auto before = dev.counts();
    for (const Index layer : layers) numbers.read(layer, -1);
    return (dev.counts() - before).copies_in;
  };
  CHECK_FALSE(dev.gives_back());  // a pass needs two
  CHECK(numbers.streamed.widen(63) == 0);
  CHECK(numbers.streamed.widen(3 * 64 - 1) == 2 * 64);
  CHECK(copies({0, 1, 2, 3}) == 4);
  CHECK(copies({3, 1, 0, 2}) == 0);
  CHECK(quiet.text.empty());
  CHECK(dev.gives_back());  // the room of layer 3
  CHECK(quiet.said("the device is short of memory: of the layers that stayed there, some are streamed again"));
  CHECK(copies({0, 1, 2}) == 0);
  CHECK(copies({3}) == 1);  // in the place of 0
  CHECK(copies({1, 2}) == 0);
  const std::size_t told = quiet.text.size();
  {
    const nn::LayerHandle<Dev> held(&numbers.streamed, dev, 3, -1);
    CHECK(dev.gives_back());
    CHECK(copies({2}) == 0);
  }
  CHECK(quiet.text.size() == told);  // once is enough
  CHECK_FALSE(dev.gives_back());
  CHECK(copies({3, 2}) == 0);
  CHECK(copies({1}) == 1);
  CHECK(numbers.streamed.widen(1 << 20) == 4 * 64);  // no more than there are layers
  CHECK(numbers.streamed.widen(1 << 20) == 0);
  CHECK(copies({0, 1, 2, 3, 4, 5}) == 4);
  CHECK(copies({0, 1, 2, 3, 4, 5}) == 0);
  numbers.check();
}

TEST_CASE("streamed layers: more of them at once than there is room for are refused") {
  Dev dev(1);
  Numbers numbers(dev, 4, {.streams_layers = true, .slots = 2, .threads = 1});
  {
    const nn::LayerHandle<Dev> first(&numbers.streamed, dev, 0, -1), second(&numbers.streamed, dev, 1, -1);
    CHECK(message_of<DeviceError>([&] { const nn::LayerHandle<Dev> third(&numbers.streamed, dev, 2, -1); }) ==
          "[layer_slots] all 2 slots are in use");
  }
  numbers.read(2, 3);
  numbers.check();
}

TEST_CASE("streamed layers: what is not said of their places is two slots, three buffers, and what the machine has") {
  const WeightPlaces places;
  CHECK((!places.streams_layers && places.slots == 2 && places.buffers == 3 && places.threads == 0));
  CHECK((!places.from && !places.memory && !places.host_decodes));
}

TEST_CASE("host matrix: rows of heads are put in order, whatever their number and type") {
  // Row (head, half, pair) is row (head, pair, half) of the file: of 2 heads of 6 rows 0 2 4 1 3 5, 6 8 10 7 9 11.
  std::vector<float> stored;
  for (int row = 0; row < 12; ++row)
    for (int column = 0; column < 3; ++column) stored.push_back(static_cast<float>(10 * row + column));
  const cpu::Threads team(2);
  const auto written = [&](Index heads) {
    const model::HostMatrix matrix({DType::f32, std::as_bytes(std::span(stored)), nullptr, heads}, 12, 3);
    CHECK(matrix.is_as_provided() == (heads == 0));
    CHECK(matrix.bytes() == stored.size() * sizeof(float));
    std::vector<float> result(stored.size());
    matrix.write(team, reinterpret_cast<std::byte*>(result.data()));
    std::vector<int> rows;
    for (std::size_t row = 0; row < 12; ++row) {
      for (std::size_t column = 0; column < 3; ++column)
        CHECK(result[3 * row + column] == result[3 * row] + static_cast<float>(column));
      rows.push_back(static_cast<int>(result[3 * row]) / 10);
    }
    return rows;
  };
  CHECK(written(0) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(written(2) == std::vector<int>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11});
  CHECK(written(1) == std::vector<int>{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11});
}

TEST_CASE("host matrix: of Q8_0 a row's quanta come first, and then its scales") {
  constexpr Index rows = 3, cols = 64;
  std::vector<std::byte> bytes;
  for (int i = 0; i < rows * 2 * 34; ++i) bytes.push_back(std::byte{static_cast<unsigned char>(i)});
  const auto matrix = model::HostMatrix::split({DType::q8_0, std::span(bytes), nullptr, 0}, rows, cols);
  CHECK((matrix.rows() == rows && matrix.cols() == cols && matrix.dtype() == DType::q8_0));
  CHECK_FALSE(matrix.is_as_provided());
  CHECK(matrix.bytes() == bytes.size());
  std::vector<std::byte> planes(bytes.size());
  matrix.write(cpu::Threads(2), planes.data());
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t block = 0; block < 2; ++block) {
      const std::byte* const from = bytes.data() + row * 68 + block * 34;
      CHECK(std::memcmp(planes.data() + row * 68 + block * 32, from + 2, 32) == 0);
      CHECK(std::memcmp(planes.data() + row * 68 + 64 + block * 2, from, 2) == 0);
    }
}

namespace {

/// A matrix (1, `count`) of one number.
model::HostMatrix row_of(Index count, float number) {
  auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(count), number);
  return {{DType::f32, std::as_bytes(std::span(*values)), values, 0}, 1, count};
}
/// What taking the memory for two layers of a MiB each says.
std::string refusal_of_two(Dev& dev, const WeightPlaces& places, comm::Communicator<Dev>* ranks = nullptr) {
  model::StreamedLayers<Dev> streamed(dev, 2, places, ranks);
  for (const Index layer : {0, 1}) (void)streamed.add(layer, row_of(1 << 18, 1));
  return message_of<Error>([&] { (void)streamed.build(); });
}

}  // namespace

TEST_CASE("streamed layers: too little memory of the host is told with what is needed and what there is") {
  constexpr std::size_t mib = std::size_t{1} << 20;
  const auto needs = [](const char* what, const char* needed, const char* there) {
    return concat("key ", what, " the layers ", needed, " MiB of the host's memory are needed, but ", there,
                  " MiB are available; allowed: none or optimizer");
  };
  Dev dev(1);
  CHECK(refusal_of_two(dev, {.streams_layers = true, .memory = 5 * mib / 2, .threads = 1}) ==
        needs("offload: to stream", "3.0", "2.5"));
  CHECK(refusal_of_two(dev, {.streams_layers = true, .from = From::memory, .memory = 3 * mib / 2, .threads = 1}) ==
        needs("offload: to stream", "2.0", "1.5"));
  CHECK(refusal_of_two(dev, {.streams_layers = true, .from = From::memory, .memory = 2 * mib, .threads = 1}) ==
        "nothing was thrown");
  Dev small(1, {.host_memory = 3 * mib / 2});
  CHECK(refusal_of_two(small, {.streams_layers = true, .from = From::memory, .threads = 1}) ==
        "key offload: 2.0 MiB of page-locked memory, to stream the layers, can't be had: [proof] out of page-locked "
        "memory: 1048576 bytes");
  CHECK(message_of<Error>([&] { const model::StreamedLayers<Dev> nobody(dev, 2, {.shares_layers = true}); }) ==
        "[streamed_layers] layers are to be shared out, but by no ranks; a Decoder takes their communicator");
  run_ranks<Dev>(2, [&](auto& self) {
    Dev own(1), lacks(1, {.host_memory = mib / 2});
    // Half of each layer, and while it is shared out one of them whole.
    for (const bool on_host : {true, false})
      CHECK(refusal_of_two(own, {.streams_layers = on_host, .shares_layers = true, .memory = mib / 2, .threads = 1},
                           &self) == needs("zero_stage: to share out", on_host ? "2.0" : "1.0", "0.5"));
    CHECK(refusal_of_two(lacks, {.shares_layers = true, .threads = 1}, &self) ==
          "key zero_stage: memory for this rank's part of the layers can't be had: [proof] out of page-locked memory: "
          "1048576 bytes");
  });
}

TEST_CASE("streamed layers: ranks have a share of each layer, on the device or the host, and gather them whole") {
  for (const bool on_host : {false, true}) {
    CAPTURE(on_host);
    run_ranks<Dev>(2, [&](auto& self) {
      Dev dev(1, {.late_sources = true});
      // Layers of three blocks of 512 bytes, of one, and of a part of one: the last rank has the larger share.
      const Index counts[] = {384, 128, 16};
      model::StreamedLayers<Dev> streamed(dev, 3, {.streams_layers = on_host, .shares_layers = true, .threads = 1},
                                          &self);
      std::vector<nn::Weight<Dev>> weights;
      for (Index layer = 0; layer < 3; ++layer)
        weights.push_back(streamed.add(layer, row_of(counts[layer], static_cast<float>(layer + 1))));
      const model::LayerStreaming taken = streamed.build();
      const std::size_t own = self.rank() == 0 ? 512 : 1024 + 512 + 64;
      CHECK(taken.from == From::ranks);
      CHECK(taken.layers == 1536 + 512 + 64);
      CHECK(taken.device == 2 * 1536 + (on_host ? 0 : own));
      CHECK(taken.host == (on_host ? own : 0));
      CHECK(taken.loading == 1536);
      CHECK(streamed.is_collective());
      CHECK(streamed.widen(1 << 20) == 0);
      for (const Index layer : {0, 1, 2, 1, 0}) {
        const nn::LayerHandle<Dev> handle(&streamed, dev, layer, -1);
        Tensor<Dev, float> values(dev, 1, counts[layer]);
        const auto use = weights[static_cast<std::size_t>(layer)].use(dev);
        kernel::decode(dev, use.view(), values.view());
        CHECK(to_host(dev, values.view()) ==
              std::vector<float>(static_cast<std::size_t>(counts[layer]), static_cast<float>(layer + 1)));
      }
    });
  }
  CHECK(model::shard_begins(1536, 2) == std::vector<Index>{0, 512, 1536});
  CHECK(model::shard_begins(1537, 4) == std::vector<Index>{0, 512, 1024, 1536, 1537});
  CHECK(model::shard_begins(64, 3) == std::vector<Index>{0, 0, 0, 64});
  CHECK(model::shard_size(1537, 3, 4) == 1);
  CHECK(model::shard_size(1537, 0, 4) == 512);
}

TEST_CASE("streamed layers: what goes wrong as a layer is decoded reaches whoever asks for it") {
  Dev dev(1);
  model::StreamedLayers<Dev> streamed(dev, 3, {.streams_layers = true, .from = From::files, .threads = 1});
  const std::vector<std::int32_t> integers(16, 1);
  nn::Weight<Dev> first = streamed.add(0, row_of(16, 1));
  (void)streamed.add(
      1, model::HostMatrix::decoded<float>({DType::i32, std::as_bytes(std::span(integers)), nullptr, 0}, 1, 16));
  (void)streamed.add(2, row_of(16, 3));
  CHECK(streamed.build().from == From::files);
  const auto acquired = [&](Index layer, Index next) {
    return message_of([&] { const nn::LayerHandle<Dev> handle(&streamed, dev, layer, next); });
  };
  const std::string error = "[cpu] a weight stored as I32 can't be read as numbers";
  CHECK(acquired(0, -1) == "nothing was thrown");
  CHECK(acquired(0, 1) == error);  // and has not got its own layer
  CHECK(message_of<DeviceError>([&] { (void)first.use(dev); }).starts_with("[weight] a matrix (1, 16) is read while"));
  CHECK(acquired(0, -1) == "nothing was thrown");  // it is on the device
  CHECK(acquired(1, -1) == error);
  CHECK(acquired(2, -1) == error);  // whatever comes from there
}

}  // namespace streamed_layers_test
