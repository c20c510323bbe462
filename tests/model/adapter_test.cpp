// Adapter folders: what is written, what PEFT writes and is read, and what is refused by name.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/decoding.hpp"
#include "support/message_of.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace adapter_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;
using Values = std::map<std::string, std::vector<float>>;

struct Subject {
  D dev{1};
  model::Source source;
  model::Decoder<D, float> decoder;

  Subject(const std::filesystem::path& folder, const model::AdapterConfig& adapter)
      : source(model::Source::open(folder)), decoder(dev, source) {
    decoder.attach(dev, adapter);
  }
  Values values() {
    Values result;
    decoder.params().for_each([&](const auto& param) { result[param.name] = to_host(dev, param.value); });
    return result;
  }
};

io::Json peft_config() {
  return {
      {"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"bias", "none"}, {"target_modules", {"q_proj", "v_proj"}}};
}
model::AdapterConfig parsed(const io::Json& changes) {
  io::Json json = peft_config();
  json.update(changes);
  return model::parse_adapter_config(json, "adapter_config.json");
}

}  // namespace

TEST_CASE("adapter: saved and loaded again, every bit is the same, under PEFT's names and shapes") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.rank = 3;
  Subject first(folder / "base", config);
  fill_adapter(first.dev, first.decoder);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(first.dev, first.decoder, folder / "adapter");
  const auto files = model::open_adapter(folder / "adapter");
  CHECK(files.tensors.tensors().size() == 2 * 7 * 2);
  const auto shape_of = [&](const std::string& end) {
    const auto* tensor = files.tensors.find("base_model.model.model.layers.1." + end);
    REQUIRE_MESSAGE(tensor != nullptr, end);
    CHECK(tensor->dtype == DType::f32);
    return tensor->shape;
  };
  CHECK(shape_of("self_attn.q_proj.lora_A.weight") == Shape{3, 16});
  CHECK(shape_of("self_attn.k_proj.lora_B.weight") == Shape{8, 3});
  CHECK(shape_of("mlp.up_proj.lora_B.weight") == Shape{24, 3});
  CHECK(shape_of("mlp.down_proj.lora_A.weight") == Shape{3, 24});
  Subject second(folder / "base", files.config);
  model::load_adapter(second.dev, second.decoder, files);
  CHECK(first.values() == second.values());
}

TEST_CASE("adapter: an alpha that float32 cannot hold is refused, and so is an expression that is no module's name") {
  CHECK(holds(message_of([] {
                parsed({{"lora_alpha", 1e308}});
              }),
              "\"lora_alpha\" is 1e+308, which is no finite number in float32"));
  CHECK(holds(message_of([] { parsed({{"alpha_pattern", {{"q_proj", -1e39}}}}); }), "\"q_proj\" is -1e+39"));
  CHECK(holds(message_of([] {
                parsed({{"target_modules", "x"}});
              }),
              "\"target_modules\" is the expression \"x\", which is no module's whole name"));
}

TEST_CASE("adapter: the tensors are compared with what the settings ask for before there is room for it") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.rank = 3;
  Subject subject(folder / "base", config);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(subject.dev, subject.decoder, folder / "adapter");
  auto files = model::open_adapter(folder / "adapter");
  const model::Config& shape = subject.source.config();
  CHECK_NOTHROW(model::check_adapter(files, shape));
  const auto message = [&](auto&& change) {
    model::AdapterConfig other = config;
    change(other);
    std::swap(files.config, other);
    const std::string text = message_of([&] { model::check_adapter(files, shape); });
    std::swap(files.config, other);
    return text;
  };
  CHECK(holds(message([](auto& c) { c.rank = 65536; }), "lora_A.weight is (3, 16); the config expects (65536, 16)"));
  CHECK(holds(message([](auto& c) { c.rank_pattern = {{"down_proj", 4}}; }), "(3, 24); the config expects (4, 24)"));
  CHECK(holds(message([](auto& c) { c.layers = {7}; }), "adapter_config.json: it targets no projection"));
  model::Config deeper = shape;
  deeper.num_hidden_layers = 3;
  CHECK(holds(message_of([&] { model::check_adapter(files, deeper); }),
              (folder / "adapter" / "adapter_model.safetensors").native() +
                  ": missing tensors: base_model.model.model.layers.2"));
  model::Config wider = shape;
  wider.intermediate_size = 32;
  CHECK(holds(message_of([&] { model::check_adapter(files, wider); }), "gate_proj.lora_B.weight is (24, 3)"));
}

TEST_CASE("adapter: unless told otherwise it has rank 8, alpha 16 and all projections") {
  const model::AdapterConfig config;
  for (const auto name : model::projection_names) {
    CHECK(config.rank_of(0, name).rank == 8);
    CHECK(config.rank_of(0, name).scale == 2);
  }
  CHECK(config.dropout == 0);
  CHECK_FALSE(config.rslora);
}

TEST_CASE("adapter: a tensor that holds no finite number is refused") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.targets = {"q_proj"};
  Subject subject(folder / "base", config);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(subject.dev, subject.decoder, folder / "adapter");
  const auto file = folder / "adapter" / "adapter_model.safetensors";
  const std::string sound = io::read_file(file);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::string content = sound;
    std::memcpy(content.data() + content.size() - sizeof bad, &bad, sizeof bad);
    io::write_file(file, std::string_view(content));
    CHECK(holds(
        message_of([&] { model::load_adapter(subject.dev, subject.decoder, model::open_adapter(folder / "adapter")); }),
        concat(" holds ", bad, "; expected finite numbers")));
  }
}

TEST_CASE("adapter: one that a step has spoilt is not saved, and what was there stays") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.targets = {"q_proj"};
  Subject subject(folder / "base", config);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(subject.dev, subject.decoder, folder / "adapter");
  const std::string before = io::read_file(folder / "adapter" / "adapter_model.safetensors");
  subject.decoder.params().for_each([&](const auto& param) {
    auto values = to_host(subject.dev, param.value);
    values[1] = std::numeric_limits<float>::infinity();
    copy_from_host<D, float>(subject.dev, values, param.value);
  });
  CHECK(
      holds(message_of<NonFiniteError>([&] { model::save_adapter(subject.dev, subject.decoder, folder / "adapter"); }),
            "q_proj.lora_A holds inf; a smaller learning_rate may help"));
  CHECK(io::read_file(folder / "adapter" / "adapter_model.safetensors") == before);
}

TEST_CASE("adapter: tensors that are missing, extra or misshapen are named") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.targets = {"q_proj"};
  Subject saved(folder / "base", config);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(saved.dev, saved.decoder, folder / "adapter");
  const auto message = [&](const model::AdapterConfig& other) {
    Subject subject(folder / "base", other);
    return message_of(
        [&] { model::load_adapter(subject.dev, subject.decoder, model::open_adapter(folder / "adapter")); });
  };
  model::AdapterConfig more = config, fewer = config, wider = config;
  more.targets = {"q_proj", "v_proj"};
  fewer.layers = {0};
  wider.rank = 5;
  const auto listed = [](std::string_view projection, std::vector<int> layers) {
    std::string names;
    for (const int layer : layers)
      for (const char* part : {"A", "B"})
        names += concat(names.empty() ? "" : ", ", "base_model.model.model.layers.", layer, ".self_attn.", projection,
                        ".lora_", std::string_view(part), ".weight");
    return names;
  };
  const std::string where = (folder / "adapter" / "adapter_model.safetensors").native();
  CHECK(message(more) == concat(where, ": missing tensors: ", listed("v_proj", {0, 1})));
  CHECK(message(fewer) == concat(where, ": tensors that the config does not target: ", listed("q_proj", {1})));
  more.targets = {"q_proj", "v_proj", "o_proj"};
  CHECK(message(more).ends_with(" and 3 more"));
  CHECK(holds(message(wider), to_string(Shape{5, 16})));
}

TEST_CASE("adapter: PEFT's ways to choose modules, ranks and scales") {
  const auto list = parsed(io::Json::object());
  CHECK(list.rank_of(0, "q_proj").rank == 4);
  CHECK(list.rank_of(0, "q_proj").scale == 2);
  CHECK(list.rank_of(0, "k_proj").rank == 0);
  const auto all = parsed({{"target_modules", "all-linear"}});
  for (const auto name : model::projection_names) CHECK(all.targets_module(1, name));
  CHECK(parsed({{"use_rslora", true}}).rank_of(0, "q_proj").scale == 8 / std::sqrt(4.0));
  const auto patterns =
      parsed({{"rank_pattern", {{"layers.1.self_attn.q_proj", 2}}}, {"alpha_pattern", {{"v_proj", 1}}}});
  CHECK(patterns.rank_of(0, "q_proj").rank == 4);
  CHECK(patterns.rank_of(1, "q_proj").rank == 2);
  CHECK(patterns.rank_of(1, "v_proj").scale == 0.25);
  const auto ends = parsed({{"rank_pattern", {{"1.self_attn.q_proj", 2}}}});  // of whole names: not layer 11
  CHECK(ends.rank_of(1, "q_proj").rank == 2);
  CHECK(ends.rank_of(11, "q_proj").rank == 4);
  const auto layers = parsed({{"layers_to_transform", {1}}});
  CHECK_FALSE(layers.targets_module(0, "q_proj"));
  CHECK(layers.targets_module(1, "q_proj"));
}

TEST_CASE("adapter: variants that are not supported are refused by name") {
  const auto refused = [&](const io::Json& changes, const char* field) {
    CAPTURE(field);
    CHECK(holds(message_of([&] { parsed(changes); }), field));
  };
  refused({{"use_dora", true}}, "use_dora");
  refused({{"bias", "all"}}, "bias");
  for (const char* name : {"o_proj", "mlp", "model.layers.0", "score"})
    refused({{"modules_to_save", {"lm_head", name}}}, "\"modules_to_save\" has \"");
  refused({{"peft_type", "IA3"}}, "IA3");
  refused({{"rank_pattern", {{"layers.*.q_proj", 2}}}}, "layers.*.q_proj");
  refused({{"rank_pattern", 5}}, "expected an object");
  refused({{"alpha_pattern", {4, 8}}}, "expected an object");
  refused({{"target_modules", {"lm_head"}}}, "lm_head");
  refused({{"r", 0}}, "\"r\" is 0");
  refused({{"r", 65537}}, "\"r\" is 65537; expected 1 to 65536");
  CHECK(parsed({{"r", 65536}}).rank == 65536);
  refused({{"lora_alpha", 1e39}}, "\"lora_alpha\" is 1e+39, which is no finite number in float32");
  for (const double dropout : {-0.1, 1.0}) refused({{"lora_dropout", dropout}}, "; expected at least 0 and below 1");
  CHECK(parsed({{"lora_dropout", 0.99}}).dropout == 0.99);
  refused({{"layers_to_transform", {1}}, {"layers_pattern", "blocks"}}, "\"layers_pattern\" is \"blocks\"");
  for (const io::Json& pattern : {io::Json("layers"), io::Json::array({"layers"}), io::Json::array()})
    CHECK(parsed({{"layers_to_transform", {1}}, {"layers_pattern", pattern}}).layers == std::vector<Index>{1});
}

TEST_CASE("adapter: modules_to_save are found by the ends of their names, as in PEFT") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  const auto trained = [&](const std::vector<std::string>& names) {
    model::AdapterConfig config;
    config.whole_modules = names;
    std::string found;
    for (const model::TensorInfo& info : model::tensors_of(model::Source::open(folder / "base").config())) {
      if (config.trains_whole(info)) found += info.name + " ";
    }
    return found;
  };
  CHECK(trained({}).empty());
  CHECK(trained({"lm_head"}) == "lm_head.weight ");
  CHECK(trained({"model.embed_tokens", "model.norm"}) == "model.embed_tokens.weight model.norm.weight ");
  CHECK(trained({"layers.1.self_attn.q_norm"}) == "model.layers.1.self_attn.q_norm.weight ");
  const std::string norms = trained({"norm"});  // all of them
  CHECK(std::count(norms.begin(), norms.end(), ' ') == 2 * 4 + 1);
}

TEST_CASE("adapter: modules_to_save that fit no module, lack a tensor or part a tied head are refused") {
  const TempFolder folder;
  RandomModel shape;
  for (const bool tied : {false, true}) {
    CAPTURE(tied);
    shape.tied = tied;
    const io::Path base = folder / (tied ? "tied" : "untied"), adapter = folder / (tied ? "a" : "b");
    write_random_model(base, shape);
    model::AdapterConfig config;
    config.whole_modules = {"embed_tokens", "lm_head"};
    Subject subject(base, config);
    std::filesystem::create_directories(adapter);
    model::save_adapter(subject.dev, subject.decoder, adapter);
    const auto check = [&](const std::vector<std::string>& names) {
      io::Json json = model::to_json(config);
      json["modules_to_save"] = names;
      io::write_json(adapter / "adapter_config.json", json);
      return message_of([&] { model::check_adapter(model::open_adapter(adapter), subject.source.config()); });
    };
    CHECK(check({"embed_tokens", "lm_head"}) == "nothing was thrown");
    CHECK(holds(check({"embed_tokens", "lm_head", "layers.7.input_layernorm"}), "which is no module of this model"));
    CHECK(holds(check({"embed_tokens", "lm_head", "norm"}), "missing tensors: "));
    if (tied) CHECK(holds(check({"embed_tokens"}), "parts the head from the embedding"));
    // As PEFT leaves them, which trains the two apart.
    check({"embed_tokens", "lm_head"});
    std::string bytes = io::read_file(adapter / "adapter_model.safetensors");
    const auto files = io::Safetensors::open(adapter / "adapter_model.safetensors");
    const auto* head = files.find("base_model.model.lm_head.weight");
    REQUIRE(head != nullptr);
    const std::string head_bytes(reinterpret_cast<const char*>(head->bytes.data()), head->bytes.size());
    const std::size_t at = bytes.find(head_bytes);
    REQUIRE(at != bytes.npos);
    bytes[at + 5] = static_cast<char>(bytes[at + 5] ^ 1);
    io::write_file(adapter / "adapter_model.safetensors", std::string_view(bytes));
    CHECK(holds(check({"embed_tokens", "lm_head"}), "with the same numbers") == tied);
    if (!tied) continue;
    // A model whose head was parted takes them, with the adapter's two tensors.
    auto parted = model::Source::open(base);
    parted.part_head();
    CHECK(model::parts_head(model::open_adapter(adapter), subject.source.config()));
    CHECK_FALSE(model::parts_head(model::open_adapter(adapter), parted.config()));
    model::Decoder<D, float> decoder(subject.dev, parted);
    const auto model_files = model::open_adapter(adapter);
    model::check_adapter(model_files, parted.config());
    decoder.attach(subject.dev, model_files.config);
    model::load_adapter(subject.dev, decoder, model_files);
    Index own = 0;
    decoder.params().for_each([&](const auto& param) { own += param.name == "lm_head.weight" ? 1 : 0; });
    CHECK(own == 1);
  }
}

TEST_CASE("adapter: A starts within 1/sqrt(in) by name and seed, B at zero") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config, one;
  one.targets = {"down_proj"};
  Subject first(folder / "base", config), second(folder / "base", one), other(folder / "base", one);
  model::init_adapter(first.dev, first.decoder, 5);
  model::init_adapter(second.dev, second.decoder, 5);
  model::init_adapter(other.dev, other.decoder, 6);
  auto all = first.values();
  CHECK(all["model.layers.0.self_attn.q_proj.lora_A"] != all["model.layers.1.self_attn.q_proj.lora_A"]);
  CHECK(all["model.layers.0.self_attn.q_proj.lora_A"] != all["model.layers.0.self_attn.k_proj.lora_A"]);
  for (const auto& entry : second.values()) {
    const auto& name = entry.first;  // clang 14 captures no structured binding
    const auto& values = entry.second;
    CAPTURE(name);
    CHECK(values == all[name]);
    const bool a = name.ends_with("lora_A");
    CHECK((values == other.values()[name]) == !a);
    const float bound = a ? 1 / std::sqrt(24.0F) : 0.0F;
    float largest = 0;
    double squares = 0;
    for (const float value : values) {
      CHECK(std::abs(value) <= bound);
      largest = std::max(largest, std::abs(value));
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (!a) continue;
    // Of n numbers that are uniform in ±b none is beyond 0.9 b once in 0.9^-n runs, and the mean square is b²/3 within
    // five of its standard deviations, √(4/45 / n) b².
    const auto n = static_cast<double>(values.size());
    REQUIRE(n == 8 * 24);
    CHECK(largest > 0.9F * bound);
    const double b2 = static_cast<double>(bound) * static_cast<double>(bound);
    CHECK(std::fabs(squares / n - b2 / 3) < 5 * std::sqrt(4.0 / 45 / n) * b2);
  }
}

TEST_CASE("adapter: an alpha that is no whole number is saved as it is, a whole one as PEFT writes it") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  for (const double alpha : {4.5, 0.25, 16.0}) {
    CAPTURE(alpha);
    model::AdapterConfig config;
    config.alpha = alpha;
    config.alpha_pattern = {{"v_proj", alpha / 2}};
    Subject subject(folder / "base", config);
    model::init_adapter(subject.dev, subject.decoder, 1);
    io::create_folders(folder / "adapter");
    model::save_adapter(subject.dev, subject.decoder, folder / "adapter");
    const io::Json json = io::read_json(folder / "adapter" / "adapter_config.json");
    CHECK(json.at("lora_alpha") == alpha);
    CHECK(json.at("lora_alpha").is_number_integer() == (alpha == 16));
    CHECK(json.at("alpha_pattern").at("v_proj") == alpha / 2);
    const auto read = model::open_adapter(folder / "adapter").config;
    CHECK(read.alpha == alpha);
    CHECK(read.rank_of(0, "v_proj").scale == alpha / 2 / static_cast<double>(config.rank));
  }
}

}  // namespace adapter_test
