// The optimizer's state in a checkpoint: what is read must be of the same tensors, and counts must be counts.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/run/state.hpp"
#include "support/message_of.hpp"
#include "support/random_model.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace optimizer_state_test {

using namespace lora;
using test::message_of;

namespace {

/// An adapter of one layer's q_proj with its optimizer, and a place for its state.
struct Subject {
  test::TempFolder temp = test::TempFolder::in_memory();
  cpu::Device dev{1};
  std::optional<model::Source> source;
  std::optional<model::Decoder<cpu::Device, float>> decoder;
  std::optional<optim::AdamW<cpu::Device, float>> optimizer;
  io::Path file = temp / "optimizer.safetensors";

  Subject() {
    test::RandomModel shape;
    shape.layers = 1;
    test::write_random_model(temp / "model", shape);
    source.emplace(model::Source::open(temp / "model"));
    decoder.emplace(dev, *source);
    model::AdapterConfig adapter;
    adapter.rank = 1;
    adapter.targets = {"q_proj"};
    decoder->attach(dev, adapter);
    optimizer.emplace(dev, decoder->params(), optim::AdamWSettings{});
  }
  void save() {
    std::filesystem::remove(file);
    run::save_optimizer(dev, *optimizer, temp.path());
  }
  void load(Index updates) { run::load_optimizer(dev, *optimizer, updates, temp.path()); }
  std::string refused(Index updates = 5) {
    return message_of<FormatError>([&] { load(updates); });
  }

  /// Writes the file anew with another declaration of the tensor `name`, or without it, or with one more.
  void rewrite(const std::string& name, std::optional<io::TensorDeclaration> other) {
    std::vector<io::TensorDeclaration> declarations;
    {
      const auto stored = io::Safetensors::open(file);
      for (const io::StoredTensor& tensor : stored.tensors())
        if (tensor.name != name) declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
    if (other) declarations.push_back(std::move(*other));
    std::filesystem::remove(file);
    io::SafetensorsWriter writer(file, declarations);
    for (const io::TensorDeclaration& one : declarations)
      writer.add(one.name, std::vector<std::byte>(static_cast<std::size_t>(bytes_of(one.dtype, one.shape.count())),
                                                  std::byte{0}));
    writer.commit();
  }
  /// The same with a count of updates for the first parameter.
  void write_count(float count) {
    const std::string name = optimizer->params().entries()[0].name + ".step";
    std::vector<io::TensorDeclaration> declarations;
    {
      const auto stored = io::Safetensors::open(file);
      for (const io::StoredTensor& tensor : stored.tensors())
        if (tensor.name != name) declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
    }
    declarations.push_back({name, DType::f32, {1}});
    std::filesystem::remove(file);
    io::SafetensorsWriter writer(file, declarations);
    for (const io::TensorDeclaration& one : declarations) {
      if (one.name == name) {
        writer.add(name, std::as_bytes(std::span(&count, 1)));
      } else {
        writer.add(one.name, std::vector<std::byte>(4 * static_cast<std::size_t>(one.shape.count()), std::byte{0}));
      }
    }
    writer.commit();
  }
};

}  // namespace

TEST_CASE("optimizer state: a tensor that is missing, or has another shape or type, is named with what was expected") {
  Subject s;
  s.save();
  std::vector<std::pair<std::string, Shape>> tensors;
  s.optimizer->for_each_state([&](const auto& state) { tensors.emplace_back(state.name, state.shape); });
  REQUIRE(tensors.size() == 4);
  const std::string begin = s.file.native() + ": the tensor ";
  for (const auto& one : {tensors.front(), tensors.back()}) {
    const std::string name = one.first, expected = "; expected F32 " + to_string(one.second);
    s.save();
    s.rewrite(name, std::nullopt);
    CHECK(s.refused() == begin + name + " is missing");
    s.rewrite(name, io::TensorDeclaration{name, DType::f32, {3, 5}});
    CHECK(s.refused() == begin + name + " is F32 (3, 5)" + expected);
    s.rewrite(name, io::TensorDeclaration{name, DType::bf16, one.second});
    CHECK(s.refused() == begin + name + " is BF16 " + to_string(one.second) + expected);
    s.rewrite(name, io::TensorDeclaration{name, DType::f32, one.second});
    CHECK(s.refused() == "nothing was thrown");
  }
}

TEST_CASE("optimizer state: what began to train later has a count of its own, a whole number up to the run's") {
  Subject s;
  s.save();
  const auto& entries = s.optimizer->params().entries();
  REQUIRE(entries.size() == 2);
  s.load(5);
  CHECK(s.optimizer->updates() == 5);
  for (const auto& entry : entries) CHECK(s.optimizer->since(entry) == 0);
  const std::string name = entries[0].name + ".step";
  for (const float count : {0.0f, 2.0f, 5.0f}) {
    s.write_count(count);
    s.load(5);
    CHECK(s.optimizer->since(entries[0]) == 5 - static_cast<Index>(count));
    CHECK(s.optimizer->since(entries[1]) == 0);
  }
  const std::string begin = concat(s.file.native(), ": the tensor ", name, " holds "),
                    end = "; expected a whole number up to 5, the updates of the whole run";
  for (const auto& one :
       {std::pair(6.0f, "6"), std::pair(-1.0f, "-1"), std::pair(2.5f, "2.5"), std::pair(std::nanf(""), "nan")}) {
    s.write_count(one.first);
    CHECK(s.refused() == begin + one.second + end);
  }
  s.rewrite(name, io::TensorDeclaration{name, DType::f32, {2}});
  CHECK(s.refused() == concat(s.file.native(), ": the tensor ", name, " is F32 (2); expected F32 (1)"));
}

TEST_CASE("optimizer state: the count of what began later is written, and of what trained from the first update none") {
  Subject s;
  const auto& entries = s.optimizer->params().entries();
  s.optimizer->set_updates(9);
  s.optimizer->set_since(entries[1], 3);
  s.save();
  const auto file = io::Safetensors::open(s.file);
  CHECK(file.find(entries[0].name + ".step") == nullptr);
  const io::StoredTensor* const count = file.find(entries[1].name + ".step");
  REQUIRE(count != nullptr);
  float read = 0;
  REQUIRE(count->bytes.size() == sizeof read);
  std::memcpy(&read, count->bytes.data(), sizeof read);
  CHECK(read == 6);
}

TEST_CASE("optimizer state: the room of a checkpoint has the tokenizer's files in it") {
  const test::TempFolder temp = test::TempFolder::in_memory();
  test::write_talking_model(temp / "model");
  const auto source = model::Source::open(temp / "model");
  const auto tokenizer = tokenizer::Tokenizer::from_folder(temp / "model");
  cpu::Device dev(1);
  model::Decoder<cpu::Device, float> decoder(dev, source);
  model::AdapterConfig adapter;
  adapter.rank = 1;
  adapter.targets = {"q_proj"};
  decoder.attach(dev, adapter);
  CHECK(tokenizer.saved_bytes() > 0);
  CHECK(run::checkpoint_bytes(decoder, &tokenizer) ==
        run::checkpoint_bytes(decoder, nullptr) + tokenizer.saved_bytes());
}

}  // namespace optimizer_state_test
