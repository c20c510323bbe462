// Where a model's numbers come from, and when its layers' are there.

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/model/weights/random_weights.hpp"
#include "lora/model/weights/trained_weights.hpp"
#include "lora/train/step.hpp"
#include "support/instantiate.hpp"
#include "support/message_of.hpp"
#include "support/process.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace provider_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

bool every(const model::TensorInfo&) { return true; }

data::Batch some_batch() {
  data::Batch batch;
  for (Index place = 0; place < 3; ++place) {
    data::Example example;
    for (Index i = 0; i < 7 + place; ++i) {
      example.tokens.push_back(static_cast<std::int32_t>((11 * i + 5 * place) % 61));
      example.labels.push_back(example.tokens.back());
    }
    batch.append(example, place);
  }
  return batch;
}

template <class Device, class T>
double loss_of(Device& dev, model::Decoder<Device, T>& decoder) {
  const data::Batch batch = some_batch();
  const auto result = decoder.evaluate(dev, batch);
  return result.loss_sum / static_cast<double>(result.labeled);
}

/// Two steps of the whole model.
template <class Device, class T>
std::vector<double> train(Device& dev, model::Decoder<Device, T>& decoder) {
  train::Stepper<Device, T> stepper(dev, decoder, {.weight_decay = 0.1}, 1, 42);
  const data::Batch batch = some_batch();
  std::vector<double> losses;
  for (Index step = 0; step < 2; ++step) {
    const auto result = stepper.accumulate(dev, step, std::span(&batch, 1));
    losses.push_back(result.loss);
    stepper.update(dev, result, 1e-2);
  }
  losses.push_back(loss_of(dev, decoder));
  return losses;
}

std::vector<float> floats_of(const model::ProvidedTensor& tensor) {
  REQUIRE(tensor.dtype == DType::f32);
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

model::Config small_config() {
  RandomModel shape;
  shape.family = "qwen2";  // with biases
  return model::parse_config(config_json(shape), "config.json");
}

/// Keeps the weights of each layer in pages of their own, which can be read only while the layer is acquired.
class Pages : public model::TensorProvider, public nn::LayerAccess<D> {
 public:
  struct Call {
    Index layer, next;
    bool operator==(const Call&) const = default;
  };

  explicit Pages(const model::TensorProvider& base) : base_(base) {}
  ~Pages() override {
    for (const auto& [info, memory] : tensors_) munmap(memory.data, memory.bytes);
  }

  const model::Config& config() const override { return base_.config(); }
  void finish() const override { base_.finish(); }
  model::ProvidedTensor provide(const model::TensorInfo& info) const override {
    const auto tensor = base_.provide(info);
    if (info.layer < 0) return tensor;
    constexpr std::size_t page = 65536;
    const std::size_t bytes = (tensor.bytes.size() + page - 1) / page * page;
    void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(data != MAP_FAILED);
    std::memcpy(data, tensor.bytes.data(), tensor.bytes.size());
    tensors_.push_back({info.layer, {data, bytes}});
    return {tensor.dtype, {static_cast<const std::byte*>(data), tensor.bytes.size()}, nullptr, tensor.permuted_heads};
  }
  /// To be called once the model is made.
  void close() { protect(-1, PROT_NONE); }

  void acquire(D&, Index layer, Index next) override {
    CHECK(held_ == -1);  // one at a time
    held_ = layer;
    calls.push_back({layer, next});
    protect(layer, PROT_READ);
  }
  void release(D&, Index layer) noexcept override {
    CHECK(held_ == layer);
    held_ = -1;
    protect(layer, PROT_NONE);
  }

  std::vector<Call> calls;

 private:
  struct Memory {
    void* data;
    std::size_t bytes;
  };
  void protect(Index layer, int how) const {
    for (const auto& [of, memory] : tensors_)
      if (layer < 0 || of == layer) mprotect(memory.data, memory.bytes, how);
  }

  const model::TensorProvider& base_;
  mutable std::vector<std::pair<Index, Memory>> tensors_;
  Index held_ = -1;
};

}  // namespace

TEST_CASE("random weights: normal numbers of the asked width, biases 0, norms 1, by seed and name alone") {
  model::Config config = small_config();
  config.vocab_size = 4000;
  config.initializer_range = 0.05;
  const model::RandomWeights weights(config, 7), again(config, 7), others(config, 8);
  std::vector<float> before;
  for (const model::TensorInfo& info : model::tensors_of(config)) {
    CAPTURE(info.name);
    const auto values = floats_of(weights.provide(info));
    REQUIRE(static_cast<Index>(values.size()) == info.shape.count());
    CHECK(values == floats_of(again.provide(info)));
    using Kind = model::TensorInfo::Kind;
    if (info.kind == Kind::norm || info.kind == Kind::bias) {
      for (const float value : values) CHECK(value == (info.kind == Kind::norm ? 1.0f : 0.0f));
      continue;
    }
    CHECK(values != floats_of(others.provide(info)));
    CHECK(values != before);
    before = values;
    // The mean of n has a spread of 0.05 / √n, the variance one of 0.05² √(2 / n); five of them.
    const auto n = static_cast<double>(values.size());
    double sum = 0, squares = 0, largest = 0;
    for (const double value : values) {
      sum += value;
      squares += value * value;
      largest = std::max(largest, std::fabs(value));
    }
    CHECK(std::fabs(sum / n) < 5 * 0.05 / std::sqrt(n));
    CHECK(std::fabs(squares / n - 0.0025) < 5 * 0.0025 * std::sqrt(2 / n));
    CHECK(largest > 0.05 * 1.5);
    CHECK(largest < 0.05 * 6);
    double within = 0;
    for (const double value : values) within += std::fabs(value) < 0.05 ? 1 : 0;
    CHECK(std::fabs(within / n - 0.6827) < 5 * std::sqrt(0.6827 * 0.3173 / n));
  }
  config.initializer_range = 0;
  CHECK_THROWS_WITH_AS(model::RandomWeights(config, 7), "initializer_range: given 0; expected a number above 0",
                       ConfigError);
  config.initializer_range = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(model::RandomWeights(config, 7), ConfigError);
}

TEST_CASE("random weights: the embedding's row of the padding token is 0, as in transformers, and no other") {
  model::Config config = small_config();
  const auto tensors = model::tensors_of(config);
  const auto& table = tensors.front();
  REQUIRE(table.kind == model::TensorInfo::Kind::embedding);
  const auto plain = floats_of(model::RandomWeights(config, 7).provide(table));
  for (const std::int32_t id : {0, 5, -1, -61}) {
    CAPTURE(id);
    config.pad_token_id = id;
    const model::RandomWeights weights(config, 7);
    auto expected = plain;
    const auto row = expected.begin() + (id < 0 ? id + config.vocab_size : id) * config.hidden_size;
    std::fill(row, row + config.hidden_size, 0.0f);
    CHECK(floats_of(weights.provide(table)) == expected);
    for (const auto& info : tensors)  // a head of its own has no such row
      if (info.kind == model::TensorInfo::Kind::head) CHECK(floats_of(weights.provide(info))[5] != 0);
  }
  for (const std::int32_t id : {61, -62}) {
    config.pad_token_id = id;
    CHECK_THROWS_WITH_AS(
        model::RandomWeights(config, 7),
        concat("pad_token_id: given ", id, "; expected a token of the model's vocabulary of 61").c_str(), ConfigError);
  }
}

TEST_CASE("providers: each tensor is asked for once, and bytes that do not fit it are refused") {
  struct Watched : model::RandomWeights {
    using RandomWeights::RandomWeights;
    mutable std::map<std::string, int> asked{};
    std::string cut{};
    model::ProvidedTensor provide(const model::TensorInfo& info) const override {
      ++asked[info.name];
      auto tensor = RandomWeights::provide(info);
      if (info.name == cut) tensor.bytes = tensor.bytes.first(tensor.bytes.size() - 4);
      return tensor;
    }
  };
  Watched weights(small_config(), 3);
  D dev(1);
  { const model::Decoder<D, float> decoder(dev, weights); }
  std::map<std::string, int> once;
  for (const auto& info : model::tensors_of(weights.config())) once[info.name] = 1;
  CHECK(weights.asked == once);
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "model.norm.weight"}) {
    weights.cut = name;
    CHECK_THROWS_WITH_AS((model::Decoder<D, float>(dev, weights)), doctest::Contains(concat("of ", name).c_str()),
                         ShapeError);
  }
  CHECK(message_of<ShapeError>([&] { (void)model::Decoder<D, float>(dev, weights); }) ==
        "[loader] the provider has 60 bytes of model.norm.weight; expected 64 for F32 (16)");
}

TEST_CASE(
    "providers: projections of one input lie one below the other where a device wants that, and is given copies") {
  using Device = proof::Device;
  const model::RandomWeights weights(small_config(), 3);
  for (const bool joins : {false, true}) {
    CAPTURE(joins);
    Tiling tiling = D(1).tiling();
    tiling.joins_projections = joins;
    Device dev(1, {.tiling = tiling});
    model::Decoder<Device, float> decoder(dev, weights);
    for (Index layer = 0; layer < 2; ++layer)
      for (auto* group : decoder.stack().layer(layer).inner().groups()) {
        const std::byte* end = nullptr;
        for (const auto& projection : group->projections()) {
          const auto use = projection.linear.weight.stored().use(dev);
          if (end != nullptr) CHECK((use.view().data() == end) == joins);
          end = use.view().data() + use.view().bytes();
        }
      }
  }
}

TEST_CASE("providers: of matrices that are to train a device keeps nothing, and has them when they are used") {
  using Device = proof::Device;
  const model::RandomWeights weights(small_config(), 3);
  const auto trains = [](const model::TensorInfo& info) {
    return info.projection == "k_proj" || info.kind == model::TensorInfo::Kind::embedding;
  };
  std::size_t trained = 0;
  for (const model::TensorInfo& info : model::tensors_of(weights.config()))
    if (trains(info) && info.shape.rank() > 1) trained += static_cast<std::size_t>(info.shape.count()) * sizeof(float);
  for (const bool joins : {false, true}) {
    CAPTURE(joins);
    Tiling tiling = D(1).tiling();
    tiling.joins_projections = joins;
    Device dev(1, {.late_sources = true, .tiling = tiling}), beside(1, {.late_sources = true, .tiling = tiling});
    model::Decoder<Device, float> decoder(dev, weights, {.trained = trains}), other(beside, weights);
    const auto less = [&] { return beside.allocated().now() - dev.allocated().now(); };
    CHECK(less() == trained);
    CHECK(loss_of(dev, decoder) == loss_of(beside, other));
    decoder.train_own(dev, trains);
    other.train_own(beside, trains);
    CHECK(less() == trained);
    CHECK(train(dev, decoder) == train(beside, other));
    CHECK(less() == trained);
  }
}

TEST_CASE("providers: a device that copies does not keep a whole model alive on the host meanwhile") {
  // Tensors of a provider that count those which are alive, and their bytes.
  struct Counted : model::RandomWeights {
    using RandomWeights::RandomWeights;
    mutable std::shared_ptr<std::size_t> alive = std::make_shared<std::size_t>(0);
    mutable std::size_t peak = 0, all = 0;
    model::ProvidedTensor provide(const model::TensorInfo& info) const override {
      auto tensor = RandomWeights::provide(info);
      const std::size_t size = tensor.bytes.size();
      *alive += size;
      all += size;
      peak = std::max(peak, *alive);
      tensor.owner = std::shared_ptr<const void>(
          tensor.owner.get(), [inner = tensor.owner, count = alive, size](const void*) { *count -= size; });
      return tensor;
    }
  };
  model::Config config = small_config();
  config.hidden_size = 1024;
  config.intermediate_size = 2048;
  const Counted weights(config, 3);
  proof::Device dev(1, {.late_sources = true});
  { const model::Decoder<proof::Device, float> decoder(dev, weights); }
  REQUIRE(weights.all > std::size_t{48} << 20);
  CHECK(weights.peak < std::size_t{26} << 20);  // what is held, and the tensor that makes it too much
  CHECK(*weights.alive == 0);
}

TEST_CASE("random weights: a model of them knows nothing, and learns, alike on the CPU and the proof device") {
  const model::RandomWeights weights(small_config(), 3);
  const auto run = [&]<class Device>(Device& dev) {
    model::Decoder<Device, float> decoder(dev, weights);
    decoder.train_own(dev, every);
    return train(dev, decoder);
  };
  D cpu(2);
  const auto losses = run(cpu);
  CHECK(std::fabs(losses[0] - std::log(61.0)) < 0.1);
  CHECK(losses[1] < losses[0]);
  CHECK(losses[2] < losses[1]);
  proof::Device dev(2, {.late_sources = true});
  CHECK(run(dev) == losses);
}

TEST_CASE("trained weights: what was saved comes back, the rest is the base's") {
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", RandomModel{});
  const auto source = model::Source::open(folder / "model");
  const auto path = folder / "trained.safetensors";
  D dev(2);
  const auto some = [](const model::TensorInfo& info) {
    return info.kind != model::TensorInfo::Kind::projection || info.layer == 1;
  };
  model::Decoder<D, float> decoder(dev, source);
  decoder.train_own(dev, some);
  const double before = loss_of(dev, decoder);
  train(dev, decoder);
  const double after = loss_of(dev, decoder);
  CHECK(after < before);
  model::save_trained(dev, decoder, path);
  {
    const auto file = io::Safetensors::open(path);
    std::size_t count = 0;
    for (const model::TensorInfo& info : model::tensors_of(source.config())) {
      CAPTURE(info.name);
      const auto* const tensor = file.find(info.name);
      CHECK((tensor != nullptr) == some(info));
      if (tensor == nullptr) continue;
      ++count;
      CHECK(tensor->shape == info.shape);
    }
    CHECK(file.tensors().size() == count);
  }
  const model::TrainedWeights trained(source, path);
  model::Decoder<D, float> again(dev, trained);
  CHECK(loss_of(dev, again) == after);
  again.train_own(dev, some);
  CHECK(loss_of(dev, again) == after);

  SUBCASE("a tensor of another model") {
    RandomModel shape;
    shape.layers = 1;
    write_random_model(folder / "other", shape);
    const auto other = model::Source::open(folder / "other");
    const model::TrainedWeights wrong(other, path);
    CHECK(message_of<FormatError>([&] {
            model::Decoder<D, float>(dev, wrong);
          }).find("belongs to no part of such a model") != std::string::npos);
  }
  SUBCASE("another shape") {
    RandomModel shape;
    shape.hidden = 32;
    write_random_model(folder / "other", shape);
    const auto other = model::Source::open(folder / "other");
    const model::TrainedWeights wrong(other, path);
    CHECK_THROWS_WITH_AS(
        (model::Decoder<D, float>(dev, wrong)),
        concat(path.native(), ": the tensor model.embed_tokens.weight is F32 (61, 16); expected f32 (61, 32)").c_str(),
        FormatError);
  }
  SUBCASE("a number in the file that is none, in its last tensor: nothing has been taken before") {
    std::string bytes = io::read_file(path);
    const float infinite = std::numeric_limits<float>::infinity();
    std::memcpy(bytes.data() + bytes.size() - sizeof infinite, &infinite, sizeof infinite);
    io::write_file(folder / "spoiled.safetensors", std::string_view(bytes));
    model::Decoder<D, float> fresh(dev, source);
    fresh.train_own(dev, some);
    CHECK(loss_of(dev, fresh) == before);
    const auto spoiled = io::Safetensors::open(folder / "spoiled.safetensors");
    const auto last = std::max_element(spoiled.tensors().begin(), spoiled.tensors().end(),
                                       [](const auto& a, const auto& b) { return a.bytes.data() < b.bytes.data(); });
    CHECK(message_of([&] { model::load_trained(dev, fresh, source, folder / "spoiled.safetensors"); }) ==
          concat((folder / "spoiled.safetensors").native(), ": the tensor ", last->name,
                 " holds inf; expected finite numbers"));
    fresh.params().refresh(dev);
    CHECK(loss_of(dev, fresh) == before);
    model::load_trained(dev, fresh, source, path);
    CHECK(loss_of(dev, fresh) == after);
  }
  SUBCASE("a tensor too many: nothing has been taken before") {
    const auto file = io::Safetensors::open(path);
    std::vector<io::TensorDeclaration> declarations;
    for (const auto& tensor : file.tensors()) declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
    declarations.push_back({"model.extra", DType::f32, Shape{1}});
    io::SafetensorsWriter writer(folder / "more.safetensors", declarations);
    for (const auto& tensor : file.tensors()) writer.add(tensor.name, tensor.bytes);
    const float one[] = {1};
    writer.add("model.extra", std::as_bytes(std::span(one)));
    writer.commit();
    model::Decoder<D, float> fresh(dev, source);
    fresh.train_own(dev, some);
    CHECK(message_of([&] { model::load_trained(dev, fresh, source, folder / "more.safetensors"); }) ==
          (folder / "more.safetensors").native() + ": the tensor model.extra belongs to no part of such a model");
    fresh.params().refresh(dev);
    CHECK(loss_of(dev, fresh) == before);
  }
  SUBCASE("another type") {
    const auto norm = model::tensors_of(source.config())[1];
    io::SafetensorsWriter writer(folder / "narrow.safetensors", {{norm.name, DType::bf16, norm.shape}});
    writer.add(norm.name, std::vector<std::byte>(2 * static_cast<std::size_t>(norm.shape.count())));
    writer.commit();
    const model::TrainedWeights narrow(source, folder / "narrow.safetensors");
    CHECK(narrow.has(norm.name));
    CHECK(message_of([&] { (void)narrow.provide(norm); }) ==
          (folder / "narrow.safetensors").native() +
              ": the tensor model.layers.0.input_layernorm.weight is BF16 (16); expected f32 (16)");
  }
  SUBCASE("a tensor that is missing: nothing has been taken before") {
    model::Decoder<D, float> fresh(dev, source);
    fresh.train_own(dev, every);
    CHECK_FALSE(model::TrainedWeights(source, path).has("model.layers.0.self_attn.q_proj.weight"));
    CHECK(message_of([&] { model::load_trained(dev, fresh, source, path); }) ==
          path.native() + ": the tensor model.layers.0.self_attn.q_proj.weight is missing");
    fresh.params().refresh(dev);
    CHECK(loss_of(dev, fresh) == before);
    CHECK(model::trains_whole(fresh));
    CHECK_FALSE(model::trains_whole(decoder));
  }
  SUBCASE("a number that is none") {
    decoder.params().for_each([](const auto& param) {
      if (param.name == "model.norm.weight") param.value.data()[3] = std::numeric_limits<float>::infinity();
    });
    CHECK(
        message_of<NonFiniteError>([&] { model::save_trained(dev, decoder, folder / "spoiled.safetensors"); }) ==
        "the weights are not saved: the tensor model.norm.weight holds inf; if the base has no such number, a smaller "
        "learning_rate may help");
    CHECK_FALSE(std::filesystem::exists(folder / "spoiled.safetensors"));
  }
}

TEST_CASE("layer access: each layer is acquired while it is read, with what comes next, and then released") {
  const TempFolder folder = TempFolder::in_memory();
  RandomModel shape;
  shape.layers = 3;
  write_random_model(folder / "model", shape);
  const auto source = model::Source::open(folder / "model");
  using Calls = std::vector<Pages::Call>;
  // After forward comes backward, and after both the next pass.
  const Calls forward{{0, 1}, {1, 2}, {2, 2}}, backward{{2, 1}, {1, 0}, {0, 0}}, evaluation{{0, 1}, {1, 2}, {2, 0}};
  for (const Index recomputed : {0, 3}) {
    CAPTURE(recomputed);
    D dev(2);
    const auto losses = [&](Pages* pages) {
      model::Decoder<D, float> decoder(dev,
                                       pages == nullptr ? static_cast<const model::TensorProvider&>(source) : *pages);
      if (pages != nullptr) {
        pages->close();
        decoder.stack().set_access(pages);
      }
      decoder.attach(dev, {});
      model::init_adapter(dev, decoder, 7);
      decoder.recompute(recomputed);
      auto result = train(dev, decoder);
      // Reading a tensor by itself.
      for (const model::TensorInfo& info : model::tensors_of(source.config())) {
        if (info.kind != model::TensorInfo::Kind::projection) continue;
        const Arena::Scope scope(dev.arena());
        result.push_back(static_cast<double>(to_host(dev, decoder.value(dev, info))[5]));
      }
      return result;
    };
    Pages pages(source);
    CHECK(losses(&pages) == losses(nullptr));
    Calls expected;
    for (int step = 0; step < 2; ++step) {
      expected.insert(expected.end(), forward.begin(), forward.end());
      expected.insert(expected.end(), backward.begin(), backward.end());
    }
    expected.insert(expected.end(), evaluation.begin(), evaluation.end());
    for (Index layer = 0; layer < 3; ++layer)
      for (int projection = 0; projection < 7; ++projection) expected.push_back({layer, -1});
    CHECK(pages.calls == expected);
  }
}

TEST_CASE("layer access: a layer that nobody acquired can't be read") {
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", RandomModel{});
  const auto source = model::Source::open(folder / "model");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    D dev(1);
    Pages pages(source);
    model::Decoder<D, float> decoder(dev, pages);
    pages.close();
    loss_of(dev, decoder);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  // Sanitizers report the signal and exit.
  CHECK((WIFSIGNALED(status) || WEXITSTATUS(status) != 0));
}

}  // namespace provider_test
