// Adapters as PEFT saved them (tests/make/golden.py): what plain LoRA can express gives PEFT's logits, before and after
// lora has saved it again; what asks for more is refused by the name of its field.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/decoding.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace peft_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

const std::filesystem::path data = LORA_FIXTURES;
const std::filesystem::path adapters = data / "adapters";

/// The base of all these adapters.
template <class T>
struct Subject {
  D dev{1};
  model::Decoder<D, T> decoder{dev, model::Source::open(data / "golden" / "llama")};

  explicit Subject(const std::filesystem::path& adapter) {
    const auto files = model::open_adapter(adapter);
    decoder.attach(dev, files.config);
    model::load_adapter(dev, decoder, files);
  }
  std::vector<Accum<T>> logits() {
    const auto tokens = io::read_json(adapters / "reference.json").at("tokens").get<Tokens>();
    const auto n = static_cast<std::int32_t>(tokens.size());
    return logits_of(dev, decoder, tokens, {n - 3, n - 2, n - 1});
  }
};

std::vector<float> values_of(const io::StoredTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.count()));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

/// The names of a folder's adapters, from their logits, so that none is passed over.
std::vector<std::string> names() {
  std::vector<std::string> result;
  const auto logits = io::Safetensors::open(adapters / "logits.safetensors");
  for (const auto& tensor : logits.tensors()) result.push_back(tensor.name);
  return result;
}

}  // namespace

TEST_CASE("peft: adapters of every plain kind give PEFT's logits, in float32 and in double") {
  const auto expected = io::Safetensors::open(adapters / "logits.safetensors");
  CHECK(names().size() == 21);
  for (const auto& name : names()) {
    CAPTURE(name);
    const auto reference = values_of(*expected.find(name));
    CHECK(distance(Subject<float>(adapters / name).logits(), reference) < 2e-5);
    CHECK(distance(Subject<double>(adapters / name).logits(), reference) < 1e-6);  // the frequencies' last places
  }
}

TEST_CASE("peft: an adapter reaches the copies that bfloat16 products read") {
  const auto logits = io::Safetensors::open(adapters / "logits.safetensors");
  const auto all = values_of(*logits.find("all")), other = values_of(*logits.find("gaussian"));
  const double error = distance(Subject<bf16>(adapters / "all").logits(), all);
  // A rounding to bfloat16 is a relative error of u/√3 in the root of its mean square, u = 2⁻⁸, and independent ones
  // add up in squares. In each of the three layers there are 17: of the seven matrices, and of what norms, projections,
  // rotation, probabilities, SwiGLU and the two sums of the residual stream write (10). Besides those of embedding,
  // last norm, head and logits. No part of a layer weighs more than the stream that it is added to, so that none grows;
  // twice the root is the bound of one draw.
  constexpr double roundings = 3 * 17 + 4;
  CHECK(error < 2 * std::sqrt(roundings / 3) * 0x1p-8);
  CHECK(distance(other, all) > 5 * error);
}

TEST_CASE("peft: saved again, they are the same adapters") {
  for (const auto& name : names()) {
    CAPTURE(name);
    const TempFolder folder;
    Subject<float> first(adapters / name);
    model::save_adapter(first.dev, first.decoder, folder.path());
    Subject<float> second(folder.path());
    CHECK(second.logits() == first.logits());
    const auto before = io::Safetensors::open(adapters / name / "adapter_model.safetensors");
    const auto after = io::Safetensors::open(folder / "adapter_model.safetensors");
    CHECK(after.tensors().size() == before.tensors().size());
    for (const auto& tensor : after.tensors()) CHECK(before.find(tensor.name) != nullptr);
    // What chooses modules and scales stays as PEFT has it, but for the initialization, which is past.
    const auto was = io::read_json(adapters / name / "adapter_config.json");
    const auto is = io::read_json(folder / "adapter_config.json");
    for (const char* field : {"r", "lora_alpha", "lora_dropout", "use_rslora", "target_modules", "exclude_modules",
                              "rank_pattern", "alpha_pattern", "modules_to_save", "bias", "peft_type", "task_type"}) {
      CAPTURE(field);
      CHECK(is.at(field) == was.at(field));
    }
  }
}

TEST_CASE("peft: what plain LoRA can't express is refused by its field") {
  std::size_t count = 0;
  for (const auto& item : io::read_json(adapters / "refused.json")) {
    const auto field = item.at("field").get<std::string>();
    CAPTURE(io::to_text(item.at("config"), -1));
    const auto message = message_of([&] { model::parse_adapter_config(item.at("config"), "adapter_config.json"); });
    CAPTURE(message);
    CHECK(message.starts_with("adapter_config.json: \"" + field + "\" "));
    ++count;
  }
  CHECK(count == 32);
}

TEST_CASE("peft: a field that nobody knows is refused unless it is off") {
  const auto config = io::read_json(adapters / "subset" / "adapter_config.json");
  const auto message = [&](const io::Json& value) {
    auto json = config;
    json["some_new_field"] = value;
    return message_of([&] { model::parse_adapter_config(json, "adapter_config.json"); });
  };
  for (const io::Json& off : {io::Json(nullptr), io::Json(false), io::Json(""), io::Json::array(), io::Json::object()})
    CHECK(message(off) == "nothing was thrown");
  for (const io::Json& on : {io::Json(true), io::Json(1), io::Json("x"), io::Json{1}, io::Json{{"a", 1}}})
    CHECK(holds(message(on), concat("\"some_new_field\" is ", io::to_text(on, -1), ", which is not supported")));
}

TEST_CASE("peft: an adapter saved as a pickle is told apart from one that is not there") {
  const TempFolder folder;
  std::filesystem::copy(adapters / "subset" / "adapter_config.json", folder / "adapter_config.json");
  CHECK_THROWS_AS(model::open_adapter(folder.path()), IoError);
  io::write_file(folder / "adapter_model.bin", std::string_view("x"));
  CHECK(message_of([&] { model::open_adapter(folder.path()); }) ==
        (folder / "adapter_model.bin").native() +
            ": a pickle, which is not read; expected adapter_model.safetensors (save_pretrained with "
            "safe_serialization=True)");
  std::filesystem::copy(adapters / "subset" / "adapter_model.safetensors", folder / "adapter_model.safetensors");
  CHECK_NOTHROW(model::open_adapter(folder.path()));  // both are there: no pickle is wanted
}

}  // namespace peft_test
