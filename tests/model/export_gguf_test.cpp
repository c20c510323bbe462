// Exported GGUF files: byte for byte those that the gguf package writes, read back as the same model, and what no such
// file can say.

#include "lora/model/export/export_gguf.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/instantiate.hpp"
#include "lora/model/export/merge.hpp"
#include "lora/model/weights/stop_ids.hpp"
#include "lora/tokenizer/tokenizer.hpp"
#include "support/decoding.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_gguf.hpp"
#include "support/temp_folder.hpp"

namespace export_gguf_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

const std::filesystem::path fixtures = LORA_FIXTURES;

/// The model folder of a family that tests/make/gguf_files.py has exported. What is whole there takes the place of
/// the golden one.
void write_family(const std::string& family, const io::Path& folder) {
  std::filesystem::create_directories(folder);
  for (const auto& from : {fixtures / "golden" / family, fixtures / "export" / family})
    for (const auto& entry : std::filesystem::directory_iterator(from))
      if (const auto name = entry.path().filename().native();
          name.starts_with("model.") || name.starts_with("config.") || name.starts_with("tokenizer") ||
          name.starts_with("generation"))
        std::filesystem::copy_file(entry.path(), folder / name, std::filesystem::copy_options::overwrite_existing);
}

/// Exports as the command does.
template <class Change = void (*)(D&, model::Decoder<D, float>&)>
void export_model(
    model::Source source, const io::Path& file, std::string_view outtype, const std::string& name,
    Change&& change = [](auto&, auto&) {}, Index at_once = Index{1} << 20) {
  D dev(2);
  const auto tokenizer = tokenizer::Tokenizer::from_folder(source.path());
  const DType dtype = model::gguf_dtype(outtype).value_or(model::gguf_dtype_of(source));
  auto metadata = model::gguf_metadata(source.config(), dtype, name);
  tokenizer.add_to(metadata, source.config().vocab_size,
                   {tokenizer.chat_template(), model::stop_ids_of(source), source.config().bos_token_id, name});
  model::Decoder<D, float> decoder(dev, source);
  change(dev, decoder);
  io::GgufWriter writer(file, metadata, model::gguf_tensors(source.config(), dtype));
  model::write_gguf_tensors(dev, decoder, dtype, writer, at_once);
  writer.commit();
  CHECK(writer.size() == std::filesystem::file_size(file));
}

std::string sum_of(const io::Path& file) { return checksum_text(text_hash(io::read_file(file))); }

io::Json expected_sums() { return io::read_json(fixtures / "export" / "sums.json"); }

/// The numbers of every tensor, by name.
std::map<std::string, std::vector<float>> values_of(const model::Source& source) {
  D dev(1);
  model::Decoder<D, float> decoder(dev, source);
  std::map<std::string, std::vector<float>> all;
  for (const auto& info : model::tensors_of(source.config())) {
    const Arena::Scope scope(dev.arena());
    all[info.name] = to_host(dev, decoder.value(dev, info));
  }
  return all;
}

constexpr const char* families[] = {"qwen2", "qwen3", "llama", "smollm3", "mistral", "phi3", "gemma2", "gemma3_text"};

}  // namespace

TEST_CASE("export: a model's file has the bytes that the gguf package writes") {
  const TempFolder temp;
  const Quiet quiet;
  const io::Json sums = expected_sums();
  for (const std::string family : families) {
    write_family(family, temp / family);
    for (const auto& [outtype, sum] : sums["models"][family].items()) {
      const std::string what = family + " " + outtype;
      CAPTURE(what);
      const io::Path file = temp / (family + "-" + outtype + ".gguf");
      export_model(model::Source::open(temp / family), file, outtype, family);
      CHECK(sum_of(file) == sum.get<std::string>());
    }
  }
}

TEST_CASE("export: auto is bfloat16 of a model that is stored so, and else float16") {
  const TempFolder temp;
  const io::Json sums = expected_sums();
  for (const auto& [family, outtype] : {std::pair("qwen2", "f16"), {"qwen3", "bf16"}, {"smollm3", "f16"}}) {
    const std::string what = family;
    CAPTURE(what);
    write_family(family, temp / family);
    const io::Path file = temp / (std::string(family) + ".gguf");
    export_model(model::Source::open(temp / family), file, "auto", family);
    CHECK(sum_of(file) == sums["models"][family][outtype].get<std::string>());
  }
  RandomModel blocks;
  blocks.hidden = blocks.ffn = 32;
  blocks.heads = blocks.kv_heads = 4;
  blocks.head_dim = 8;
  test::write_gguf(temp / "blocks.gguf", blocks, random_tensors(blocks), DType::q8_0);
  CHECK(model::gguf_dtype_of(model::Source::open(temp / "blocks.gguf")) == DType::bf16);
}

TEST_CASE("export: a file is read back as the same model and the same tokenizer") {
  const TempFolder temp;
  const Quiet quiet;
  for (const std::string family : families) {
    CAPTURE(family);
    write_family(family, temp / family);
    const auto before = model::Source::open(temp / family);
    export_model(before, temp / "m.gguf", "f32", family);
    const auto after = model::Source::open(temp / "m.gguf");
    after.finish();
    const model::Config &a = before.config(), &b = after.config();
    CHECK(b.model_type == (family == "mistral" ? "llama" : a.model_type));  // whose file is llama's
    CHECK(a.rotates == b.rotates);
    CHECK(a.head_dim == b.head_dim);
    CHECK(a.rms_norm_eps == b.rms_norm_eps);
    CHECK(a.rope.theta == b.rope.theta);
    if (family != "llama") {  // its factors are those of no published model, and stay factors
      CHECK(a.rope.scaling == b.rope.scaling);
      CHECK(a.rope.factor == b.rope.factor);
    }
    CHECK(a.max_position_embeddings == b.max_position_embeddings);
    CHECK(a.tie_word_embeddings == b.tie_word_embeddings);
    CHECK(std::vector{a.qkv_bias, a.o_bias, a.mlp_bias, a.qk_norm} ==
          std::vector{b.qkv_bias, b.o_bias, b.mlp_bias, b.qk_norm});
    CHECK(model::stop_ids_of(before) == model::stop_ids_of(after));
    // Norms of gemma are stored with 1 added, which rounds small ones.
    const float rounding = a.norm_offset > 0 ? 0x1p-24f : 0;
    const auto values = values_of(before), again = values_of(after);
    for (const auto& one : values) {
      const std::string& tensor = one.first;
      const std::vector<float>& numbers = one.second;
      CAPTURE(tensor);
      const auto& found = again.at(tensor);
      CHECK(std::equal(numbers.begin(), numbers.end(), found.begin(), found.end(),
                       [&](float x, float y) { return std::abs(x - y) <= rounding; }));
    }

    const auto own = tokenizer::Tokenizer::from_folder(temp / family);
    const auto read = tokenizer::Tokenizer::from_gguf(*after.gguf());
    CHECK(own.chat_template() == read.chat_template());
    CHECK(own.bos() == read.bos());
    CHECK(own.eos() == read.eos());
    CHECK(own.opening() == read.opening());
    CHECK(read.vocab_size() == std::min(own.vocab_size(), a.vocab_size));  // without what fills it up
    for (const char* text : {"the thin and 00123 a<|im_start|>user\nin the<|im_end|>", "<tool_call>the <|fim_prefix|>x",
                             "  and,  12345 the\n\n in", "that's an ant", "<|user|> the<|end|>\n\nin",
                             "<start_of_turn>user\n\n\tin        the<end_of_turn>", "</s> and"}) {
      CAPTURE(text);
      CHECK(own.encode(text, true).ids == read.encode(text, true).ids);
    }
    std::filesystem::remove(temp / "m.gguf");
  }
  CHECK(holds(quiet.text, "the added token \"<image_soft_token>\" is left out"));
}

TEST_CASE("export: rotary settings that a file can say compute the same after it") {
  const TempFolder temp;
  const auto frequencies = [](const model::Config& config) {
    return nn::inverse_frequencies(config.rope, config.head_dim);
  };
  write_family("llama", temp / "llama");
  using Scaling = nn::RopeConfig::Scaling;
  const auto check = [&](auto&& change) {
    auto source = model::Source::open(temp / "llama");
    source.config().rope = {};
    change(source.config().rope);
    export_model(source, temp / "m.gguf", "f16", "m");
    const auto after = model::Source::open(temp / "m.gguf");
    const auto expected = frequencies(source.config()), found = frequencies(after.config());
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-6));
    CHECK(nn::rotary_magnitude(after.config().rope) ==
          doctest::Approx(nn::rotary_magnitude(source.config().rope)).epsilon(1e-6));
    std::filesystem::remove(temp / "m.gguf");
  };
  check([](nn::RopeConfig& rope) { rope.theta = 12345; });
  check([](nn::RopeConfig& rope) {
    rope.scaling = Scaling::linear;
    rope.factor = 3;
  });
  const auto yarn = [&](auto&& more) {
    check([&](nn::RopeConfig& rope) {
      rope.scaling = Scaling::yarn;
      rope.factor = 4;
      rope.original_max_position_embeddings = 32;
      more(rope);
    });
  };
  yarn([](nn::RopeConfig&) {});
  yarn([](nn::RopeConfig& rope) { rope.beta_fast = 16, rope.beta_slow = 2; });
  yarn([](nn::RopeConfig& rope) { rope.attention_factor = 1.25; });
  yarn([](nn::RopeConfig& rope) { rope.mscale = 1, rope.mscale_all_dim = 0.5; });
  check([](nn::RopeConfig& rope) {
    rope.scaling = Scaling::llama3;
    rope.factor = 5;
    rope.low_freq_factor = 2;
    rope.original_max_position_embeddings = 64;
  });
  check([](nn::RopeConfig& rope) { rope.frequency_factors = {1, 1, 2, 3}; });
}

TEST_CASE("export: a merged model's file has the numbers of the merged folder") {
  const TempFolder temp;
  for (const std::string family : {"llama", "qwen3"}) {
    CAPTURE(family);
    write_family(family, temp / family);
    const auto source = model::Source::open(temp / family);
    D dev(2);
    model::AdapterConfig adapter;
    adapter.rank = 3;
    const auto attach = [&](D& device, model::Decoder<D, float>& decoder) {
      decoder.attach(device, adapter);
      fill_adapter(device, decoder, 0.3);
    };
    model::Decoder<D, float> decoder(dev, source);
    attach(dev, decoder);
    std::filesystem::create_directories(temp / "merged");
    model::save_merged(dev, decoder, source, temp / "merged", DType::f32, Index{1} << 40);
    export_model(source, temp / "m.gguf", "f32", "m", attach);
    CHECK(values_of(model::Source::open(temp / "m.gguf")) == values_of(model::Source::open(temp / "merged")));
    CHECK(values_of(source) != values_of(model::Source::open(temp / "merged")));
    std::filesystem::remove(temp / "m.gguf");
    std::filesystem::remove_all(temp / "merged");
  }
}

TEST_CASE("export: rows are encoded piece by piece, whole heads where they change places") {
  const model::TensorInfo plain{"w", "w", {100, 1 << 19}, model::TensorInfo::Kind::projection};
  model::TensorInfo permuted = plain;
  permuted.gguf_heads = 10;
  CHECK(model::detail::gguf_rows_at_once(plain, 100, 1 << 19, 1 << 20) == 2);
  CHECK(model::detail::gguf_rows_at_once(plain, 100, 1 << 21, 1 << 20) == 1);
  CHECK(model::detail::gguf_rows_at_once(permuted, 100, 1 << 19, 1 << 20) == 10);
  CHECK(model::detail::gguf_rows_at_once(permuted, 100, 1 << 16, 1 << 20) == 20);
  // So the file is the same: with one row or head at a time, and with a few and a rest.
  const TempFolder temp;
  for (const std::string family : {"llama", "qwen3"}) {
    write_family(family, temp / family);
    const auto source = model::Source::open(temp / family);
    const auto exported = [&](Index at_once) {
      export_model(
          source, temp / "m.gguf", "f32", "m", [](auto&, auto&) {}, at_once);
      return sum_of(temp / "m.gguf");
    };
    const std::string whole = exported(1 << 20);
    for (const Index at_once : {Index{1}, 5 * source.config().hidden_size}) {
      CAPTURE(family);
      CAPTURE(at_once);
      CHECK(exported(at_once) == whole);
    }
  }
}

TEST_CASE("export: what llama.cpp has no place for is refused") {
  const TempFolder temp;
  const auto check = [&](const char* family, auto&& change) {
    model::Config config =
        model::parse_config(io::read_json(fixtures / "golden" / family / "config.json"), "config.json");
    if (config.model_type == "smollm3") config.rotates = {true, true, true};
    CHECK_NOTHROW(model::check_gguf(config, "M"));
    change(config);
    return message_of<FormatError>([&] { model::check_gguf(config, "M"); });
  };
  CHECK(check("qwen2", [](auto& c) { c.rotates[1] = false; }) ==
        "M: layer 1 runs without rotary embedding, which llama.cpp's qwen2 has no place for; expected all with it: "
        "export a smollm3 or use transformers");
  CHECK(check("smollm3", [](auto& c) { c.rotates[2] = false; }) ==
        "M: layer 2 runs without rotary embedding, which llama.cpp's smollm3 has no place for; expected each of 4 "
        "without, and the others with it");
  CHECK(holds(check("smollm3",
                    [](auto& c) {
                      c.num_hidden_layers = 4;
                      c.rotates.push_back(true);
                    }),
              "M: layer 3 runs with rotary embedding"));
  CHECK(holds(check("qwen2",
                    [](auto& c) {
                      c.rope.scaling = nn::RopeConfig::Scaling::llama3;
                      c.rope.original_max_position_embeddings = 64;
                    }),
              "rope_scaling is Llama 3.1's, which llama.cpp's qwen2 has no place for; expected none, linear or yarn"));
  const auto no_place = [](const char* what, const char* type, const char* expected) {
    return concat("M: ", what, ", which llama.cpp's ", type, " has no place for; expected ", expected);
  };
  CHECK(check("qwen2", [](auto& c) { c.rope.truncate = false; }) ==
        no_place("rope_scaling has \"truncate\" false", "qwen2", "true"));
  CHECK(check("qwen2", [](auto& c) { c.qkv_bias = false; }) == no_place("q, k and v have no biases", "qwen2", "them"));
  for (const char* type : {"qwen3", "smollm3"}) {
    CHECK(check(type, [](auto& c) { c.qkv_bias = true; }) == no_place("q, k and v have biases", type, "none"));
    CHECK(check(type, [](auto& c) { c.o_bias = true; }) == no_place("o_proj has a bias", type, "none"));
    CHECK(check(type, [](auto& c) { c.mlp_bias = true; }) ==
          no_place("the projections of the MLP have biases", type, "none"));
  }
  CHECK(check("qwen2", [](auto& c) { c.o_bias = true; }) == no_place("o_proj has a bias", "qwen2", "none"));
  CHECK(check("qwen2", [](auto& c) { c.head_dim = 10; }) ==
        no_place("4 heads of 10 columns", "qwen2", "as many columns in all as the model, 32"));
}

TEST_CASE("export: a mistral without a window is llama's file, and with one is refused") {
  const TempFolder temp;
  RandomModel shape;
  shape.vocabulary = 256;
  shape.more = {{"sliding_window", nullptr}};
  for (const char* family : {"mistral", "llama"}) {
    shape.family = family;
    write_random_model(temp / family, shape);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
      std::filesystem::copy_file(fixtures / "export" / "llama" / name, temp / family / name);
    export_model(model::Source::open(temp / family), temp / (std::string(family) + ".gguf"), "f32", "m");
  }
  CHECK(io::read_file(temp / "mistral.gguf") == io::read_file(temp / "llama.gguf"));
  const auto back = model::Source::open(temp / "mistral.gguf");
  CHECK(back.config().model_type == "llama");
  CHECK(values_of(back) == values_of(model::Source::open(temp / "mistral")));
  model::Config config = model::Source::open(temp / "mistral").config();
  config.windows = {0, 4096};
  CHECK(message_of<FormatError>([&] { model::check_gguf(config, "M"); }) ==
        "M: attention has a sliding window of 4096 tokens, which llama.cpp's llama has no place for; expected none");
}

TEST_CASE("export: a number that the type can't hold is an error that names its tensor") {
  const TempFolder temp;
  write_family("qwen2", temp / "qwen2");
  auto source = model::Source::open(temp / "qwen2");
  const auto message = message_of<NonFiniteError>([&] {
    export_model(source, temp / "m.gguf", "f16", "m", [](D& dev, model::Decoder<D, float>& decoder) {
      decoder.attach(dev, {});
      fill_adapter(dev, decoder, 1e4);
    });
  });
  CHECK(holds(message, "the merged tensor model.layers.0.self_attn.q_proj.weight would hold"));
  CHECK_FALSE(std::filesystem::exists(temp / "m.gguf"));
}

TEST_CASE("export: an adapter's file has the bytes that the gguf package writes") {
  const TempFolder temp;
  const io::Json expected = expected_sums();
  CHECK(expected["adapters"].size() == 8);
  for (const auto& [place, sums] : expected["adapters"].items()) {
    const model::Config config = model::parse_config(
        io::read_json(fixtures / "golden" / sums["model"].get<std::string>() / "config.json"), "config.json");
    for (const auto& [outtype, sum] : sums.items()) {
      if (outtype == "model") continue;
      const std::string what = place + " " + outtype;
      CAPTURE(what);
      const model::GgufAdapter adapter(model::open_adapter(fixtures / place), config, model::gguf_dtype(outtype));
      const io::Path file = temp / "a.gguf";
      io::GgufWriter writer(file, adapter.metadata((fixtures / place).filename().native()), adapter.tensors());
      adapter.write(writer);
      writer.commit();
      CHECK(sum_of(file) == sum.get<std::string>());
      std::filesystem::remove(file);
    }
  }
}

TEST_CASE("export: an adapter whose file could not say all of it is refused") {
  const model::Config config =
      model::parse_config(io::read_json(fixtures / "golden" / "llama" / "config.json"), "config.json");
  const auto message = [&](model::AdapterFiles files) {
    return message_of<FormatError>([&] { const model::GgufAdapter adapter(std::move(files), config, {}); });
  };
  CHECK(message(model::open_adapter(fixtures / "adapters" / "modules_to_save")) ==
        (fixtures / "adapters" / "modules_to_save" / "adapter_config.json").native() +
            ": \"modules_to_save\" has [\"lm_head\",\"embed_tokens\",\"norm\"], which an adapter's GGUF file can't "
            "hold; expected none: export the merged model, without adapter_only");
  auto files = model::open_adapter(fixtures / "adapters" / "all");
  files.config.alpha = 0;
  CHECK(message(files) ==
        (fixtures / "adapters" / "all" / "adapter_config.json").native() +
            ": lora_alpha of model.layers.0.self_attn.q_proj.weight is 0, which llama.cpp takes for a "
            "scale of 1; expected another");
  // Of another base.
  CHECK(holds(message(model::open_adapter(fixtures / "golden" / "qwen3" / "adapter")), "the config expects"));
}

TEST_CASE("export: an adapter's factors stay as they are stored, but for doubles, unless a type is named") {
  const model::Config config =
      model::parse_config(io::read_json(fixtures / "golden" / "llama" / "config.json"), "config.json");
  const auto dtypes = [&](const io::Path& folder, std::optional<DType> dtype) {
    const model::GgufAdapter adapter(model::open_adapter(folder), config, dtype);
    std::vector<DType> found{adapter.dtype()};
    for (const auto& tensor : adapter.tensors())
      if (std::find(found.begin(), found.end(), tensor.dtype) == found.end()) found.push_back(tensor.dtype);
    return found;
  };
  using Types = std::vector<DType>;
  CHECK(dtypes(fixtures / "adapters" / "all", {}) == Types{DType::f32});
  CHECK(dtypes(fixtures / "adapters" / "bfloat16", {}) == Types{DType::bf16});
  CHECK(dtypes(fixtures / "adapters" / "float16", {}) == Types{DType::f16});
  CHECK(dtypes(fixtures / "adapters" / "all", DType::bf16) == Types{DType::bf16});
  CHECK(dtypes(fixtures / "adapters" / "all", DType::q8_0) ==
        Types{DType::q8_0, DType::f16});  // rows of no whole block
  const TempFolder temp;
  io::copy_file(fixtures / "adapters" / "all" / "adapter_config.json", temp / "adapter_config.json");
  const auto files = io::Safetensors::open(fixtures / "adapters" / "all" / "adapter_model.safetensors");
  std::vector<io::TensorDeclaration> declarations;
  for (const auto& tensor : files.tensors()) declarations.push_back({tensor.name, DType::f64, tensor.shape});
  io::SafetensorsWriter writer(temp / "adapter_model.safetensors", declarations);
  for (const auto& tensor : files.tensors())
    writer.add(tensor.name, std::vector<std::byte>(static_cast<std::size_t>(tensor.shape.count()) * sizeof(double)));
  writer.commit();
  CHECK(dtypes(temp.path(), {}) == Types{DType::f32});
  CHECK(dtypes(temp.path(), DType::f16) == Types{DType::f16});
}

}  // namespace export_gguf_test
