// A base model's tensors: what is missing, misshapen or of the wrong type is named; a folder and a GGUF file of the
// same numbers give the same logits.

#include "lora/model/weights/weights.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/io/formats/safetensors_folder.hpp"
#include "support/decoding.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_gguf.hpp"
#include "support/temp_folder.hpp"

namespace weights_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;
using Tensors = std::vector<RandomTensor>;

const Tokens some_tokens{3, 50, 7, 7, 21, 0, 60, 33, 14};

std::vector<float> logits_from(const std::filesystem::path& path) {
  D dev{1};
  model::Decoder<D, float> decoder(dev, model::Source::open(path));
  return logits_of(dev, decoder, some_tokens);
}

/// What opening the model says, its tensors changed.
std::string message_with(const RandomModel& shape, const std::function<void(Tensors&)>& change) {
  const TempFolder folder;
  auto tensors = random_tensors(shape);
  change(tensors);
  write_model(folder.path(), config_json(shape), tensors, DType::f32);
  return message_of([&] { logits_from(folder.path()); });
}

RandomTensor& tensor_of(Tensors& tensors, const std::string& name) {
  const auto place = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
  REQUIRE_MESSAGE(place != tensors.end(), name);
  return *place;
}
void remove(Tensors& tensors, const std::string& name) {
  tensors.erase(tensors.begin() + (&tensor_of(tensors, name) - tensors.data()));
}

/// Extents that GGUF's blocks divide: those of 32 values all rows, those of 256 at least rows of `hidden`.
RandomModel wide(const std::string& family, Index hidden = 32) {
  RandomModel shape;
  shape.family = family;
  shape.hidden = hidden;
  shape.ffn = 64;
  shape.head_dim = 8;
  if (family == "llama") shape.more = {{"attention_bias", true}, {"mlp_bias", true}};
  return shape;
}

}  // namespace

TEST_CASE("weights: a tensor of another shape is named with both shapes") {
  const auto message = message_with({}, [](Tensors& tensors) {
    auto& k = tensor_of(tensors, "model.layers.1.self_attn.k_proj.weight");
    k.shape = {16, 8};
  });
  CHECK(holds(message, "the tensor model.layers.1.self_attn.k_proj.weight is (16, 8); the config expects (8, 16)"));
}

TEST_CASE("weights: a tensor that is missing, or that no part reads, is named") {
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.1.input_layernorm.weight",
        "model.layers.1.self_attn.q_norm.weight", "model.norm.weight", "lm_head.weight"}) {
    const auto message = message_with({}, [&](Tensors& tensors) { remove(tensors, name); });
    CHECK(holds(message, concat("the tensor ", name, " is missing")));
  }
  const auto extra = message_with({}, [](Tensors& tensors) {
    tensors.push_back({"model.layers.2.mlp.up_proj.weight", {1}, {0.0}});
    for (const char* name : {"inv_freq", "cos_cached", "sin_cached"})  // old files have them
      tensors.push_back({concat("model.layers.0.self_attn.rotary_emb.", name), {1}, {0.0}});
  });
  CHECK(holds(extra, "tensors that a qwen3 model of this config does not have: model.layers.2.mlp.up_proj.weight"));
  CHECK_FALSE(holds(extra, "rotary_emb"));
}

TEST_CASE("weights: names without \"model.\" count as with it, and those with more before them are told") {
  for (const bool tied : {false, true}) {
    RandomModel shape;
    shape.more = {{"tie_word_embeddings", tied}};
    const TempFolder folder;
    auto tensors = random_tensors(shape);
    const auto logits = [&] {
      write_model(folder.path(), config_json(shape), tensors, DType::f32);
      return logits_from(folder.path());
    };
    if (tied) remove(tensors, "lm_head.weight");
    const auto expected = logits();
    for (RandomTensor& tensor : tensors)
      if (tensor.name.starts_with("model.")) tensor.name.erase(0, 6);
    CHECK(logits() == expected);
    io::Json json = config_json(shape);
    json["architectures"] = {"Qwen3Model"};
    io::write_json(folder / "config.json", json);
    CHECK(model::Source::open(folder.path()).config_json().at("architectures") ==
          io::Json::array({"Qwen3ForCausalLM"}));
    if (tied) {  // a head of its own is seen under these names as well
      RandomTensor head = tensor_of(tensors, "embed_tokens.weight");
      head.name = "lm_head.weight";
      tensors.push_back(head);
      CHECK(logits() == expected);
      for (double& value : tensors.back().values) value = -value;
      CHECK(logits() != expected);
    }
  }
  const auto told = [](const std::string& prefix) {
    return message_with({}, [&](Tensors& tensors) {
      for (RandomTensor& tensor : tensors) tensor.name.insert(0, prefix);
    });
  };
  CHECK(holds(told("module."),
              "the tensor model.embed_tokens.weight is missing; there is "
              "module.model.embed_tokens.weight, with a prefix of its own"));
  CHECK(told("x").ends_with("the tensor model.embed_tokens.weight is missing"));
  const auto headless = message_with({}, [&](Tensors& tensors) {
    remove(tensors, "lm_head.weight");
    for (RandomTensor& tensor : tensors) tensor.name.erase(0, 6);
  });
  CHECK(headless.ends_with("the tensor lm_head.weight is missing: the model was saved without its head"));

  const TempFolder folder;
  const auto opened = [&] { return message_of<IoError>([&] { (void)model::Source::open(folder.path()); }); };
  CHECK(holds(opened(), "config.json"));
  io::write_file(folder / "m.gguf", "");
  CHECK(opened() == concat("no config.json in ", folder.path().native(),
                           "; it holds m.gguf: save_pretrained of transformers makes a model.safetensors of weights in "
                           "PyTorch's files, and a .gguf file is given by its own name"));
}

TEST_CASE("weights: biases are there exactly where the config has them") {
  for (const char* name : {"self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj"}) {
    const std::string bias = concat("model.layers.0.", name, ".bias");
    CHECK(holds(message_with(wide("llama"), [&](Tensors& tensors) { remove(tensors, bias); }), bias + " is missing"));
  }
  CHECK(holds(message_with(wide("qwen2"),
                           [](Tensors& tensors) {
                             tensors.push_back({"model.layers.0.self_attn.o_proj.bias", {32}, std::vector<double>(32)});
                           }),
              "does not have: model.layers.0.self_attn.o_proj.bias"));
}

TEST_CASE("weights: integers are no weights") {
  const TempFolder folder;
  const RandomModel shape;
  auto tensors = random_tensors(shape);
  io::write_json(folder / "config.json", config_json(shape));
  for (const DType dtype : {DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}) {
    std::vector<io::TensorDeclaration> declarations;
    for (const auto& tensor : tensors)
      declarations.push_back({tensor.name, tensor.name == "model.norm.weight" ? dtype : DType::f32, tensor.shape});
    io::SafetensorsWriter writer(folder / "model.safetensors", declarations);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      writer.add(tensors[i].name,
                 declarations[i].dtype == dtype
                     ? std::vector<std::byte>(static_cast<std::size_t>(bytes_of(dtype, tensors[i].shape.count())))
                     : encode(tensors[i].values, DType::f32));
    writer.commit();
    CHECK(message_of([&] { logits_from(folder.path()); }) ==
          concat(folder.path().native(), ": the tensor model.norm.weight is ", name_of(dtype),
                 "; expected a floating point or GGUF block type"));
  }
}

TEST_CASE("weights: shards give what one file gives, and a missing one is named") {
  const TempFolder folder;
  const RandomModel shape;
  write_random_model(folder / "whole", shape);
  auto tensors = random_tensors(shape);
  std::filesystem::create_directories(folder / "parts");
  io::write_json(folder / "parts" / "config.json", config_json(shape));
  std::vector<io::TensorDeclaration> declarations;
  for (const auto& tensor : tensors) declarations.push_back({tensor.name, DType::f32, tensor.shape});
  io::SafetensorsFolderWriter writer(folder / "parts", declarations, 6000);
  for (auto& tensor : tensors) writer.add(tensor.name, encode(tensor.values, DType::f32));
  writer.commit();
  CHECK(logits_from(folder / "parts") == logits_from(folder / "whole"));
  std::string second;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "parts"))
    if (const auto name = entry.path().filename().native(); name.starts_with("model-00002-of-")) second = name;
  REQUIRE_FALSE(second.empty());
  std::filesystem::remove(folder / "parts" / second);
  CHECK(holds(message_of<IoError>([&] { logits_from(folder / "parts"); }), "missing shards: " + second));
}

TEST_CASE("weights: a tied head is the embedding, under whichever of the names the file holds it") {
  const TempFolder folder;
  Quiet quiet;
  RandomModel shape;
  auto tensors = random_tensors(shape);
  tensor_of(tensors, "lm_head.weight").values = tensor_of(tensors, "model.embed_tokens.weight").values;
  write_model(folder / "own", config_json(shape), tensors, DType::f32);
  shape.tied = true;
  write_model(folder / "both", config_json(shape), tensors, DType::f32);
  auto head_alone = tensors;
  remove(head_alone, "model.embed_tokens.weight");
  write_model(folder / "head", config_json(shape), head_alone, DType::f32);
  remove(tensors, "lm_head.weight");
  write_model(folder / "tied", config_json(shape), tensors, DType::f32);
  const auto expected = logits_from(folder / "own");
  for (const char* name : {"tied", "both", "head"}) {
    CHECK(logits_from(folder / name) == expected);
    CHECK(model::Source::open(folder / name).config().tie_word_embeddings);
  }
  CHECK(quiet.text.empty());
}

TEST_CASE("weights: a head that differs from the embedding is used, whatever config.json says of a tie") {
  const TempFolder folder;
  RandomModel shape;
  const auto tensors = random_tensors(shape);
  write_model(folder / "own", config_json(shape), tensors, DType::f32);
  shape.tied = true;
  write_model(folder / "said", config_json(shape), tensors, DType::f32);
  Quiet quiet;
  CHECK(logits_from(folder / "said") == logits_from(folder / "own"));
  CHECK(quiet.text == concat((folder / "said").native(), ": lm_head.weight is used, which differs from the embedding, ",
                             "although config.json has tie_word_embeddings true; what is written of this model says ",
                             "false\n"));
  const auto source = model::Source::open(folder / "said");
  CHECK(model::config_json_of(source).at("tie_word_embeddings") == false);
  CHECK(io::read_json(folder / "said" / "config.json").at("tie_word_embeddings") == true);
}

TEST_CASE("weights: a GGUF file's own head is used, and without one the embedding") {
  const TempFolder folder;
  const auto shape = wide("qwen3");
  auto tensors = random_tensors(shape);
  write_gguf(folder / "own.gguf", shape, tensors, DType::f32);
  remove(tensors, "lm_head.weight");
  write_gguf(folder / "tied.gguf", shape, tensors, DType::f32);
  CHECK_FALSE(model::Source::open(folder / "own.gguf").config().tie_word_embeddings);
  CHECK(model::Source::open(folder / "tied.gguf").config().tie_word_embeddings);
  CHECK(logits_from(folder / "own.gguf") != logits_from(folder / "tied.gguf"));
}

TEST_CASE("weights: tensors that are not aligned to their type are read all the same") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TempFolder folder;
    RandomModel shape;
    shape.dtype = dtype;
    write_random_model(folder.path(), shape);
    const auto expected = logits_from(folder.path());
    std::string file = io::read_file(folder / "model.safetensors");
    std::uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    file.insert(sizeof header + static_cast<std::size_t>(header), " ");
    ++header;
    std::memcpy(file.data(), &header, sizeof header);
    io::write_file(folder / "model.safetensors", std::string_view(file));
    CHECK(logits_from(folder.path()) == expected);
  }
}

TEST_CASE("weights: a GGUF file gives the logits of a folder with the same numbers") {
  int number = 0;
  for (const char* family : {"llama", "qwen2", "qwen3"})
    for (const DType dtype : weight_types) {
      if (dtype == DType::f64) continue;  // not in GGUF files
      if (number++ % effort(1, 5, "weights: of GGUF files four of five pairs of a type of model and one of weights"))
        continue;
      CAPTURE(family);
      CAPTURE(name_of(dtype));
      const TempFolder folder;
      const auto shape = wide(family, std::max(block_elements(dtype), Index{32}));
      auto tensors = random_tensors(shape);
      write_gguf(folder / "model.gguf", shape, tensors, dtype);
      for (auto& tensor : tensors)  // rounded as the file has them, exactly
        encode(tensor.values, gguf_dtype(tensor.shape, dtype));
      write_model(folder / "folder", config_json(shape), tensors, DType::f32);
      // A block's scale times its quantum fits float32 exactly; with a minimum it is rounded once.
      const auto expected = logits_from(folder / "folder"), actual = logits_from(folder / "model.gguf");
      CHECK(distance(actual, expected) < 2e-6);
    }
}

TEST_CASE("weights: a GGUF file may mix types, also among projections of one input") {
  const TempFolder folder;
  const auto shape = wide("qwen2", 256);
  auto tensors = random_tensors(shape);
  GgufChanges changes;
  changes.dtype = [](const std::string& name, DType dtype) {
    return holds(name, "attn_v") || holds(name, "ffn_up") || holds(name, "output.") ? DType::q6_k : dtype;
  };
  write_gguf(folder / "model.gguf", shape, tensors, DType::q4_k, changes);
  for (auto& tensor : tensors)
    encode(tensor.values, gguf_dtype(tensor.shape, changes.dtype(gguf_name(tensor.name), DType::q4_k)));
  write_model(folder / "folder", config_json(shape), tensors, DType::f32);
  CHECK(distance(logits_from(folder / "model.gguf"), logits_from(folder / "folder")) < 2e-6);
}

TEST_CASE("weights: a GGUF file's missing tensors are named as the file would") {
  const TempFolder folder;
  const auto shape = wide("qwen3");
  GgufChanges changes;
  changes.keep = [](const std::string& name) { return name != "blk.1.ffn_norm.weight"; };
  write_gguf(folder / "model.gguf", shape, random_tensors(shape), DType::f16, changes);
  CHECK(holds(message_of([&] { logits_from(folder / "model.gguf"); }),
              "model.gguf: the tensor blk.1.ffn_norm.weight is missing"));
}

TEST_CASE("weights: what is neither a model folder nor a GGUF file") {
  const TempFolder folder;
  CHECK(holds(message_of<IoError>([&] { model::Source::open(folder / "none"); }), "none: no such model folder"));
  io::write_file(folder / "model.bin", std::string_view("x"));
  CHECK(
      holds(message_of([&] { model::Source::open(folder / "model.bin"); }), "expected a model folder or a .gguf file"));
  CHECK_THROWS_AS(model::Source::open(folder.path()), IoError);
}

TEST_CASE("weights: what files hold too many of is listed, up to a line") {
  const auto message = [](int count) {
    return message_with({}, [&](Tensors& tensors) {
      for (int i = 0; i < count; ++i) tensors.push_back({concat("extra.", 100 + i), {1}, {0.0}});
    });
  };
  CHECK(message(2).ends_with(": tensors that a qwen3 model of this config does not have: extra.100, extra.101"));
  CHECK(message(40).ends_with(", extra.127, …"));
  CHECK(message(28).ends_with(", extra.127, …"));
  CHECK(message(27).ends_with(", extra.126"));
}

TEST_CASE("weights: the errors of a file name it, its tensor and what is expected") {
  const TempFolder folder;
  const RandomModel shape;
  auto tensors = random_tensors(shape);
  tensor_of(tensors, "model.norm.weight").shape = {4, 4};
  write_model(folder.path(), config_json(shape), tensors, DType::f32);
  CHECK(message_of([&] { logits_from(folder.path()); }) ==
        folder.path().native() + ": the tensor model.norm.weight is (4, 4); the config expects (16)");
  CHECK(message_of<IoError>([&] { model::Source::open(folder / "none"); }) ==
        (folder / "none").native() + ": no such model folder or .gguf file");
  CHECK(message_of([&] { model::Source::open(folder / "model.safetensors"); }) ==
        (folder / "model.safetensors").native() + ": expected a model folder or a .gguf file");
  CHECK(message_of<ConfigError>([&] { (void)model::config_dtype_name(DType::q8_0); }) ==
        "a model folder can't hold weights as Q8_0; expected float32, bfloat16 or float16");
  CHECK(model::config_dtype_name(DType::f32) == "float32");
  CHECK(model::config_dtype_name(DType::bf16) == "bfloat16");
  CHECK(model::config_dtype_name(DType::f16) == "float16");
  CHECK(model::folder_dtype(DType::q4_k) == DType::bf16);
  CHECK(model::folder_dtype(DType::f32) == DType::f32);
}

TEST_CASE("weights: a source tells its type by down_proj, and whether its rotary settings were changed") {
  const TempFolder folder;
  RandomModel shape;
  shape.dtype = DType::f16;
  write_random_model(folder / "folder", shape);
  GgufChanges changes;
  changes.dtype = [](const std::string& name, DType dtype) { return holds(name, "ffn_down") ? DType::bf16 : dtype; };
  write_gguf(folder / "x.gguf", shape, random_tensors(shape), DType::f32, changes);
  for (const char* name : {"folder", "x.gguf"}) {
    CAPTURE(std::string(name));
    auto source = model::Source::open(folder / name);
    const bool gguf = source.gguf() != nullptr;
    CHECK(source.path() == folder / name);
    CHECK(source.stored_dtype() == (gguf ? DType::bf16 : DType::f16));
    CHECK_FALSE(source.is_initial());
    CHECK(source.config_json().is_null() == gguf);
    const auto tensors = model::tensors_of(source.config());
    CHECK(source.file_name_of(tensors[0]) == (gguf ? "token_embd.weight" : "model.embed_tokens.weight"));
    CHECK(source.dtype_of(tensors[0]) == (gguf ? DType::f32 : DType::f16));
    CHECK_FALSE(model::rotary_changed(source));
    source.config().rope.theta = 7;
    CHECK(model::rotary_changed(source));
    CHECK(model::config_json_of(source).at("rope_theta") == 7);
    source.config().rope.theta = 10000;
    source.config().rotates[1] = false;
    CHECK(model::rotary_changed(source));
  }
  const auto initial = model::Source::initial(folder / "folder", config_json(shape), 3);
  CHECK(initial.is_initial());
  CHECK(initial.tensors().empty());
  CHECK(initial.stored_dtype() == DType::f32);
  CHECK(initial.path() == folder / "folder");
  CHECK(initial.config_json() == config_json(shape));
  io::Json odd = config_json(shape);
  odd["head_dim"] = 3;
  CHECK(message_of([&] { model::Source::initial(folder / "folder", odd, 3); }) ==
        (folder / "folder" / "config.json").native() + ": \"head_dim\" is 3; expected an even number");
}

namespace {

struct Whole {
  static constexpr bool splits_blocks = false;
  static constexpr bool decodes(DType dtype) { return dtype == DType::q8_0; }
};
struct Split : Whole {
  static constexpr bool splits_blocks = true;
};

}  // namespace

TEST_CASE("weights: where a device takes blocks split, only those of projections stay as they are") {
  const auto tensors = model::tensors_of(model::parse_config(config_json(RandomModel{}), "config.json"));
  for (const auto& info : tensors) {
    const bool projection = info.kind == model::TensorInfo::Kind::projection;
    CHECK(model::stays_quantized<Whole>(info, DType::q8_0));
    CHECK(model::stays_quantized<Split>(info, DType::q8_0) == projection);
    CHECK_FALSE(model::stays_quantized<Whole>(info, DType::q4_0));
    CHECK_FALSE(model::stays_quantized<Split>(info, DType::q4_0));
  }
}

TEST_CASE("weights: a head that is parted has the embedding's numbers, however often it is, and one of its own stays") {
  const TempFolder folder;
  RandomModel shape;
  for (const bool tied : {true, false}) {
    CAPTURE(tied);
    shape.tied = tied;
    write_random_model(folder.path(), shape);
    auto source = model::Source::open(folder.path());
    for (int i = 0; i < 2; ++i) source.part_head();
    CHECK_FALSE(source.config().tie_word_embeddings);
    const auto tensors = model::tensors_of(source.config());
    REQUIRE(tensors.back().kind == model::TensorInfo::Kind::head);
    CHECK((source.provide(tensors.back()).bytes.data() == source.provide(tensors.front()).bytes.data()) == tied);
  }
}

}  // namespace weights_test
