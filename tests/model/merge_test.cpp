// Merging: W + s B A to the rounding of the stored type, what the folder then computes, and what is refused before
// anything is written.

#include "lora/model/export/merge.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "lora/inputs/model_files.hpp"
#include "lora/instantiate.hpp"
#include "lora/model/export/export_gguf.hpp"
#include "lora/model/export/rotary_note.hpp"
#include "support/decoding.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_gguf.hpp"
#include "support/temp_folder.hpp"

namespace merge_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

const Tokens some_tokens{3, 50, 7, 7, 21, 0, 60, 33, 14};
constexpr Index no_limit = Index{1} << 40;

/// A base with an adapter of different ranks and alphas; gate and up stay as they are.
struct Subject {
  D dev{2};
  model::Source source;
  model::Decoder<D, float> decoder;

  explicit Subject(model::Source opened) : source(std::move(opened)), decoder(dev, source) {
    model::AdapterConfig adapter;
    adapter.rank = 3;
    adapter.alpha = 5;
    adapter.targets = {"q_proj", "k_proj", "v_proj", "o_proj", "down_proj"};
    adapter.rank_pattern = {{"k_proj", 2}};
    adapter.alpha_pattern = {{"o_proj", 1}};
    decoder.attach(dev, adapter);
    fill_adapter(dev, decoder, 0.3);
  }
  explicit Subject(const std::filesystem::path& base) : Subject(model::Source::open(base)) {}

  void merge(const std::filesystem::path& folder, std::optional<DType> dtype = {}, Index shard = no_limit) {
    std::filesystem::create_directories(folder);
    model::save_merged(dev, decoder, source, folder, dtype, shard);
  }
  std::vector<float> logits() { return logits_of(dev, decoder, some_tokens); }
};

std::vector<float> logits_from(const std::filesystem::path& folder) {
  D dev{2};
  model::Decoder<D, float> decoder(dev, model::Source::open(folder));
  return logits_of(dev, decoder, some_tokens);
}

std::vector<double> values_of(const io::StoredTensor& tensor) {
  std::vector<double> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.shape.count()); ++i)
    values.push_back(model::detail::element_of(tensor, i, "the test"));
  return values;
}

/// Half the distance from 1 to the next number of a stored type.
double unit(DType dtype) { return dtype == DType::f32 ? 0x1p-24 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11; }

/// How far logits may move when each weight is rounded once more: 2 layers of four products in a row and the head, each
/// off by at most a unit of its norm.
double logits_bound(DType dtype) { return 9 * unit(dtype) + 1e-6; }

}  // namespace

TEST_CASE("merge: takes a device's memory for one tensor at a time, and so does an export") {
  const TempFolder folder;
  RandomModel shape;
  shape.layers = 12;
  shape.hidden = 64;
  shape.ffn = 96;
  shape.dtype = DType::bf16;
  write_random_model(folder / "base", shape);
  const model::Config config = model::Source::open(folder / "base").config();
  Index largest = 0, whole = 0;
  for (const model::TensorInfo& info : model::tensors_of(config)) {
    largest = std::max(largest, info.shape.count());
    whole += info.shape.count();
  }
  REQUIRE(whole > 20 * largest);
  const auto check = [&](auto&& write) {
    Subject subject(folder / "base");
    write(subject);
    // One in float32, and what forms it: another of its size.
    const std::size_t taken = subject.dev.arena().peak_scratch(),
                      one = sizeof(float) * static_cast<std::size_t>(largest);
    CHECK(taken >= one);
    CHECK(taken < 2 * one + 4096);
  };
  check([&](Subject& subject) { subject.merge(folder / "merged"); });
  check([&](Subject& subject) {
    io::GgufWriter writer(folder / "m.gguf", model::gguf_metadata(config, DType::q8_0, "m"),
                          model::gguf_tensors(config, DType::q8_0));
    model::write_gguf_tensors(subject.dev, subject.decoder, DType::q8_0, writer);
    writer.commit();
  });
}

TEST_CASE("merge: every matrix is W + s B A to the rounding of the stored type, the rest keeps its bits") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(name_of(dtype));
    const TempFolder folder;
    RandomModel shape;
    shape.family = "qwen2";
    shape.dtype = dtype;
    write_random_model(folder / "base", shape);
    Subject subject(folder / "base");
    subject.merge(folder / "merged");
    const auto base = io::Safetensors::open(folder / "base"), merged = io::Safetensors::open(folder / "merged");
    REQUIRE(merged.tensors().size() == base.tensors().size());
    std::map<std::string, std::vector<float>> adapter;
    subject.decoder.params().for_each(
        [&](const auto& param) { adapter[param.name] = to_host(subject.dev, param.value); });
    std::size_t with_adapter = 0;
    for (const auto& tensor : merged.tensors()) {
      CAPTURE(tensor.name);
      const auto* before = base.find(tensor.name);
      REQUIRE(before != nullptr);
      REQUIRE(tensor.shape == before->shape);
      CHECK(tensor.dtype == dtype);
      const std::string path = tensor.name.substr(0, tensor.name.rfind('.'));
      if (!tensor.name.ends_with(".weight") || adapter.count(path + ".lora_A") == 0) {
        CHECK(std::equal(tensor.bytes.begin(), tensor.bytes.end(), before->bytes.begin(), before->bytes.end()));
        continue;
      }
      ++with_adapter;
      const auto &a = adapter[path + ".lora_A"], &b = adapter[path + ".lora_B"];  // (R, I) and (R, O)
      const auto out = static_cast<std::size_t>(tensor.shape[0]), in = static_cast<std::size_t>(tensor.shape[1]);
      const std::size_t rank = path.ends_with("k_proj") ? 2 : 3;
      REQUIRE(a.size() == rank * in);
      REQUIRE(b.size() == rank * out);
      const double scale = (path.ends_with("o_proj") ? 1.0 : 5.0) / static_cast<double>(rank);
      const auto w = values_of(*before), actual = values_of(tensor);
      double worst = 0, change = 0;
      for (std::size_t o = 0; o < out; ++o)
        for (std::size_t i = 0; i < in; ++i) {
          const double weight = w[o * in + i];
          double update = 0, size = std::fabs(weight);
          for (std::size_t r = 0; r < rank; ++r) {
            const double term = scale * static_cast<double>(b[r * out + o]) * static_cast<double>(a[r * in + i]);
            update += term;
            size += std::fabs(term);
          }
          // In float32: the scale, each product and each of R additions are rounded; then once to the stored type,
          // whose smallest numbers have a fixed spacing.
          const double bound = static_cast<double>(rank + 3) * 0x1p-24 * size +
                               unit(dtype) * (std::fabs(weight + update) + size * 0x1p-20) +
                               (dtype == DType::f16 ? 0x1p-25 : 0);
          worst = std::max(worst, std::fabs(actual[o * in + i] - weight - update) / bound);
          change = std::max(change, std::fabs(update));
        }
      CHECK(worst <= 1);
      CHECK(change > 0.01);
    }
    CHECK(with_adapter == 2 * 5);
    CHECK(distance(logits_from(folder / "merged"), subject.logits()) < logits_bound(dtype));
    CHECK(distance(logits_from(folder / "base"), subject.logits()) > 0.01);
  }
}

TEST_CASE("merge: a named type holds for every tensor and stands in config.json") {
  const TempFolder folder;
  RandomModel shape;
  shape.more = {{"torch_dtype", "float32"}, {"some_field", 7}};
  write_random_model(folder / "base", shape);
  Subject subject(folder / "base");
  subject.merge(folder / "merged", DType::bf16);
  const auto merged = io::Safetensors::open(folder / "merged");
  for (const auto& tensor : merged.tensors()) CHECK(tensor.dtype == DType::bf16);
  const auto json = io::read_json(folder / "merged" / "config.json");
  CHECK(json["torch_dtype"] == "bfloat16");
  CHECK(json["some_field"] == 7);
  CHECK_FALSE(json.contains("dtype"));
  // Numbers keep the digits of the base's file.
  std::string text = io::read_file(folder / "base" / "config.json");
  text.insert(text.find('{') + 1, "\"other\": 10000000.00,");
  io::write_file(folder / "base" / "config.json", std::string_view(text));
  Subject(folder / "base").merge(folder / "digits");
  CHECK(holds(io::read_file(folder / "digits" / "config.json"), "\"other\": 10000000.00,"));
  shape.more = {{"torch_dtype", "float32"}, {"dtype", "float32"}};  // as files that were written twice have it
  io::write_json(folder / "base" / "config.json", config_json(shape));
  Subject both(folder / "base");
  both.merge(folder / "both", DType::f16);
  for (const char* name : {"torch_dtype", "dtype"})
    CHECK(io::read_json(folder / "both" / "config.json").at(name) == "float16");
  CHECK(distance(logits_from(folder / "merged"), subject.logits()) < logits_bound(DType::bf16));

  shape.dtype = DType::f64;
  write_random_model(folder / "wide", shape);
  Subject wide(folder / "wide");
  CHECK(holds(message_of<ConfigError>([&] { wide.merge(folder / "other"); }), "can't hold weights as F64"));
  CHECK(std::filesystem::is_empty(folder / "other"));
}

TEST_CASE("merge: tied heads stay tied") {
  const TempFolder folder;
  RandomModel shape;
  shape.tied = true;
  write_random_model(folder / "base", shape);
  Subject subject(folder / "base");
  subject.merge(folder / "merged");
  CHECK(io::Safetensors::open(folder / "merged").find("lm_head.weight") == nullptr);
  CHECK(model::parse_config(io::read_json(folder / "merged" / "config.json"), "config.json").tie_word_embeddings);
  CHECK(distance(logits_from(folder / "merged"), subject.logits()) < logits_bound(DType::f32));
}

TEST_CASE("merge: a head that was parted from the embedding is written, and config.json has no tie") {
  const TempFolder folder;
  RandomModel shape;
  shape.tied = true;
  write_random_model(folder / "base", shape);
  write_gguf(folder / "base.gguf", shape, random_tensors(shape), DType::f32);
  for (const char* base : {"base", "base.gguf"}) {
    CAPTURE(std::string(base));
    auto source = model::Source::open(folder / base);
    source.part_head();
    Subject subject(std::move(source));
    const auto merged = folder / concat(base, "-merged");
    subject.merge(merged);
    CHECK(io::read_json(merged / "config.json").at("tie_word_embeddings") == false);
    const auto files = io::Safetensors::open(merged);
    const auto *head = files.find("lm_head.weight"), *table = files.find("model.embed_tokens.weight");
    REQUIRE(head != nullptr);
    CHECK(is_same(*head, *table));  // it begins with the embedding's numbers
    CHECK(distance(logits_from(merged), subject.logits()) < logits_bound(DType::f32));
  }
}

TEST_CASE("merge: an adapter with a head of its own computes the same beside a base of either kind, and merged") {
  const TempFolder folder;
  RandomModel shape;
  shape.family = "qwen2";
  shape.tied = true;
  write_random_model(folder / "base", shape);
  write_gguf(folder / "base.gguf", shape, random_tensors(shape), DType::f32);
  {
    auto source = model::Source::open(folder / "base");
    source.part_head();
    D dev{2};
    model::Decoder<D, float> decoder(dev, source);
    model::AdapterConfig adapter;
    adapter.whole_modules = {"lm_head"};
    decoder.attach(dev, adapter);
    fill_adapter(dev, decoder, 0.3);
    std::filesystem::create_directories(folder / "adapter");
    model::save_adapter(dev, decoder, folder / "adapter");
  }
  std::vector<float> expected;
  for (const char* base : {"base", "base.gguf"}) {
    CAPTURE(std::string(base));
    settings::Config config;
    config.model_name_or_path = (folder / base).native();
    const std::vector<float> tied = logits_from(folder / base);
    config.adapter_name_or_path = (folder / "adapter").native();
    const Quiet quiet;
    const auto source = inputs::open_source(config);
    CHECK(quiet.said("has a head of its own"));
    CHECK_FALSE(source.config().tie_word_embeddings);
    D dev{2};
    model::Decoder<D, float> decoder(dev, source);
    const auto files = model::open_adapter(folder / "adapter");
    model::check_adapter(files, source.config());
    decoder.attach(dev, files.config);
    model::load_adapter(dev, decoder, files);
    const std::vector<float> own = logits_of(dev, decoder, some_tokens);
    CHECK(distance(own, tied) > 0.01);
    if (expected.empty()) expected = own;
    CHECK(distance(own, expected) < 1e-6);
    const auto merged = folder / concat(base, "-merged");
    std::filesystem::create_directories(merged);
    model::save_merged(dev, decoder, source, merged, DType::f32, no_limit);
    CHECK(io::read_json(merged / "config.json").at("tie_word_embeddings") == false);
    CHECK(distance(logits_from(merged), own) < logits_bound(DType::f32));
  }
}

TEST_CASE("merge: shards above the limit, with an index, are the same model") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  Subject subject(folder / "base");
  subject.merge(folder / "whole");
  subject.merge(folder / "parts", {}, 4000);
  const auto index = io::read_json(folder / "parts" / "model.safetensors.index.json");
  std::size_t shards = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "parts"))
    if (entry.path().extension() == ".safetensors") {
      ++shards;
      CHECK(std::filesystem::file_size(entry.path()) < 4000 + 1500);  // data and header
    }
  CHECK(shards > 3);
  CHECK(index["weight_map"].size() == io::Safetensors::open(folder / "whole").tensors().size());
  CHECK(logits_from(folder / "parts") == logits_from(folder / "whole"));
}

TEST_CASE("merge: a quantized GGUF base becomes a model folder") {
  for (const char* family : {"llama", "qwen2", "qwen3"})
    for (const DType dtype : {DType::q8_0, DType::q4_0, DType::q4_k, DType::f16}) {
      CAPTURE(family);
      CAPTURE(name_of(dtype));
      const TempFolder folder;
      RandomModel shape;
      shape.family = family;
      shape.hidden = std::max(block_elements(dtype), Index{32});
      shape.ffn = 64;
      shape.head_dim = 8;
      write_gguf(folder / "base.gguf", shape, random_tensors(shape), dtype);
      Subject subject(folder / "base.gguf");
      subject.merge(folder / "merged");
      const DType stored = dtype == DType::f16 ? DType::f16 : DType::bf16;
      const auto merged = io::Safetensors::open(folder / "merged");
      CHECK(merged.find("model.layers.1.mlp.up_proj.weight")->dtype == stored);
      CHECK(merged.find("model.norm.weight")->dtype == DType::f32);
      const auto config = model::parse_config(io::read_json(folder / "merged" / "config.json"), "config.json");
      CHECK(config.model_type == family);
      CHECK(config.dtype == (stored == DType::f16 ? "float16" : "bfloat16"));
      CHECK(distance(logits_from(folder / "merged"), subject.logits()) < logits_bound(stored));
      subject.merge(folder / "exact", DType::f32);
      CHECK(distance(logits_from(folder / "exact"), subject.logits()) < logits_bound(DType::f32));
    }
}

TEST_CASE("merge: nothing is written over the base") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  const auto before = io::read_file(folder / "base" / "model.safetensors");
  std::filesystem::create_directory_symlink(folder / "base", folder / "link");
  Subject subject(folder / "base");
  for (const char* name : {"base", "link"})
    CHECK(message_of<ConfigError>([&] { subject.merge(folder / name); }) ==
          concat("key output_dir: given ", (folder / name).native(),
                 ", which is the base model's own folder; allowed: another"));
  CHECK(io::read_file(folder / "base" / "model.safetensors") == before);
}

TEST_CASE("merge: config.json tells the rotary settings that the model ran with") {
  const TempFolder folder;
  RandomModel shape;
  shape.family = "smollm3";
  shape.layers = 4;
  shape.more = {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 5e4}}}};
  write_random_model(folder / "base", shape);
  auto source = model::Source::open(folder / "base");
  source.config().rope.theta = 123;
  source.config().rotates = {false, true, true, false};
  Subject subject(std::move(source));
  subject.merge(folder / "merged");
  const auto json = io::read_json(folder / "merged" / "config.json");
  CHECK(json["rope_parameters"]["rope_theta"] == 123);
  CHECK(json["no_rope_layers"] == io::Json{0, 1, 1, 0});
  CHECK(distance(logits_from(folder / "merged"), subject.logits()) < logits_bound(DType::f32));
}

TEST_CASE("merge: layers without rotary embedding stand in config.json, of every type, and are read from there") {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    const TempFolder folder;
    RandomModel shape;
    shape.family = family;
    shape.layers = 3;
    write_random_model(folder / "base", shape);
    write_gguf(folder / "base.gguf", shape, random_tensors(shape), DType::f32);
    for (const char* base : {"base", "base.gguf"}) {
      auto source = model::Source::open(folder / base);
      source.config().rotates = {false, true, false};
      Subject subject(std::move(source));
      const auto merged = folder / concat(base, "-merged");
      subject.merge(merged);
      CHECK(io::read_json(merged / "config.json").at("no_rope_layers") == io::Json{0, 1, 0});
      CHECK(model::Source::open(merged).config().rotates == subject.source.config().rotates);
      CHECK(distance(logits_from(merged), subject.logits()) < logits_bound(DType::f32));
      const std::string note = model::rotary_note(subject.source.config(), "model");
      CHECK(holds(note, "\nThese layers run without rotary embedding: 0, 2.\n"));
      CHECK(holds(note, concat("for smollm3 only, and not for ", family, ": ")));
    }
  }
}

}  // namespace merge_test
