// The command merge: what its folder holds, and that nothing is written where it refuses.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/paths.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/safetensors.hpp"
#include "lora/model/export/rotary_note.hpp"
#include "lora/model/weights/weights.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace merge_test {

using namespace lora;

namespace {

const std::filesystem::path golden = std::filesystem::path(LORA_FIXTURES) / "golden";

/// Merges the golden adapter of this family into its base.
test::Outcome merge(const std::string& family, const std::filesystem::path& output, const std::string& key = "--dtype",
                    const std::string& value = "auto") {
  return test::run_program(LORA_PROGRAM, {"merge", "--model_name_or_path", (golden / family).native(),
                                          "--adapter_name_or_path", (golden / family / "adapter").native(),
                                          "--output_dir", output.native(), "--threads", "1", key, value});
}

/// The loss of a family's evaluation data in float32.
double loss_of(const std::string& family, const io::Path& out, const std::vector<std::string>& more) {
  const test::TempFolder folder;
  std::string records;
  const io::Json reference = io::read_json(golden / family / "reference.json");
  for (const io::Json& record : reference.at("evaluation")) records += io::to_text(record, -1) + "\n";
  io::write_file(folder / "data.jsonl", std::string_view(records));
  std::vector<std::string> words = {"eval", "--dtype=float32", "--threads=1",
                                    "--dataset=" + (folder / "data.jsonl").native(), "--output_dir=" + out.native()};
  words.insert(words.end(), more.begin(), more.end());
  const auto outcome = test::run_program(LORA_PROGRAM, words);
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  return io::read_json(out / "evaluation_results.json").at("loss").get<double>();
}

}  // namespace

TEST_CASE("program: merge writes a model, and over another one only when told to") {
  const test::TempFolder folder;
  const auto first = merge("qwen3", folder / "out");
  CAPTURE(first.errors);
  REQUIRE(first.status == 0);
  for (const char* name : {"config.json", "model.safetensors"}) CHECK(std::filesystem::exists(folder / "out" / name));
  const auto before = io::read_file(folder / "out" / "model.safetensors");
  const auto second = merge("qwen3", folder / "out", "--dtype", "float32");
  CHECK(second.status == 2);
  CHECK(test::holds(second.errors, "which holds a model (model.safetensors)"));
  CHECK(io::read_file(folder / "out" / "model.safetensors") == before);
  CHECK(merge("qwen3", folder / "out", "--overwrite_output_dir", "true").status == 0);
  CHECK(io::read_file(folder / "out" / "model.safetensors") == before);
  const auto parts = merge("qwen3", folder / "parts" / "", "--max_shard_size", "20KB");
  CHECK(parts.status == 0);
  CHECK(std::filesystem::exists(folder / "parts" / "model.safetensors.index.json"));
}

TEST_CASE(
    "program: a merged folder is a whole model: it answers as base and adapter do, with nothing but its own files") {
  const test::TempFolder folder;
  test::write_talking_model(folder / "base");
  test::write_talking_adapter(folder / "base", folder / "adapter");
  io::write_json(folder / "base" / "generation_config.json", {{"eos_token_id", {259, 'q'}}, {"top_k", 20}});
  const auto merged = test::run_program(
      LORA_PROGRAM, {"merge", "--model_name_or_path", (folder / "base").native(), "--adapter_name_or_path",
                     (folder / "adapter").native(), "--output_dir", (folder / "out").native(), "--threads", "1"});
  CAPTURE(merged.errors);
  REQUIRE(merged.status == 0);
  CHECK(merged.output.empty());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    CHECK(io::read_file(folder / "out" / name) == io::read_file(folder / "base" / name));
  std::filesystem::rename(folder / "base", folder / "away");
  test::Listener both(folder / "away", folder / "adapter"), base(folder / "away"), whole(folder / "out");
  bool differs = false;
  for (const char* question : {"one", "two", "three", "four"}) {
    const std::string answer = both.answer(question, 9);
    CHECK(whole.answer(question, 9) == answer);
    differs = differs || base.answer(question, 9) != answer;
    const auto said = test::run_program(
        LORA_PROGRAM, {"generate", "--model_name_or_path", (folder / "out").native(), "--template", "chatml", "--dtype",
                       "float32", "--prompt", question, "--max_new_tokens", "9"});
    CHECK(said.output == both.answer(question, 9, {259, 'q'}) + "\n");
  }
  CHECK(differs);
}

TEST_CASE("program: merge stores the type that is asked for") {
  const test::TempFolder folder;
  for (const auto& [name, dtype] :
       {std::pair("float32", DType::f32), std::pair("bfloat16", DType::bf16), std::pair("float16", DType::f16)}) {
    REQUIRE(merge("llama", folder / name, "--dtype", name).status == 0);
    const auto file = io::Safetensors::open(folder / name / "model.safetensors");
    for (const auto& tensor : file.tensors()) CHECK(tensor.dtype == dtype);
  }
}

TEST_CASE("program: merge takes rope_theta and no_rope_layers into config.json, and says who does not obey them") {
  const test::TempFolder folder;
  REQUIRE(merge("qwen2", folder / "out", "--rope_theta", "555").status == 0);
  CHECK(io::read_json(folder / "out" / "config.json").at("rope_parameters").at("rope_theta") == 555);
  REQUIRE(merge("smollm3", folder / "three", "--no_rope_layers", "0").status == 0);
  CHECK(io::read_json(folder / "three" / "config.json").at("no_rope_layers") == io::Json{0, 0, 1});
  CHECK_FALSE(std::filesystem::exists(folder / "three" / "README.md"));
  const auto told = merge("qwen2", folder / "some", "--no_rope_layers", "0,2");
  REQUIRE(told.status == 0);
  CHECK(test::holds(told.errors, "transformers does not read from the config.json of a qwen2 model; README.md beside"));
  CHECK(io::read_json(folder / "some" / "config.json").at("no_rope_layers") == io::Json{0, 1, 0});
  const std::string card = io::read_file(folder / "some" / "README.md");
  CHECK(test::holds(card, "These layers run without rotary embedding: 0, 2."));
  CHECK(test::holds(card, "register_forward_pre_hook"));
  // eval reads them from there, as it takes them from the key.
  const auto loss = [&](const std::vector<std::string>& more) { return loss_of("qwen2", folder / "eval", more); };
  const double expected = loss({"--model_name_or_path=" + (golden / "qwen2").native(), "--no_rope_layers=0,2",
                                "--adapter_name_or_path=" + (golden / "qwen2" / "adapter").native()});
  CHECK(loss({"--model_name_or_path=" + (folder / "some").native()}) == doctest::Approx(expected).epsilon(1e-6));
  CHECK(loss({"--model_name_or_path=" + (folder / "out").native()}) != doctest::Approx(expected).epsilon(1e-6));
}

TEST_CASE(
    "program: an adapter with a head of its own is used beside a tied base, and merged into a model that is not") {
  const io::Path heads = io::Path(LORA_FIXTURES) / "heads";
  const io::Json losses = io::read_json(heads / "losses.json");
  for (const char* name : {"lm_head", "embed_tokens"}) {
    CAPTURE(std::string(name));
    const test::TempFolder folder;
    const double expected = losses.at("losses").at(name).get<double>();
    const auto loss = [&](const std::vector<std::string>& more) { return loss_of("qwen3", folder / "eval", more); };
    // 2e-6: what golden_test derives for a loss in float32.
    const std::string base = (golden / "qwen3").native(), adapter = (heads / name).native();
    CHECK(loss({"--model_name_or_path=" + base, "--adapter_name_or_path=" + adapter}) ==
          doctest::Approx(expected).epsilon(2e-6));
    CHECK(loss({"--model_name_or_path=" + base}) == doctest::Approx(losses.at("tied").get<double>()).epsilon(2e-6));
    const auto merged = test::run_program(
        LORA_PROGRAM, {"merge", "--model_name_or_path", base, "--adapter_name_or_path", adapter, "--output_dir",
                       (folder / "out").native(), "--threads", "1", "--dtype", "float32"});
    CAPTURE(merged.errors);
    REQUIRE(merged.status == 0);
    CHECK(test::holds(merged.errors, "has a head of its own"));
    io::Json json = io::read_json(folder / "out" / "config.json");
    CHECK(json.at("tie_word_embeddings") == false);
    const std::string out = "--model_name_or_path=" + (folder / "out").native();
    CHECK(loss({out}) == doctest::Approx(expected).epsilon(2e-6));
    // As earlier versions of PEFT left what they merged: config.json has the tie, the weights don't.
    json["tie_word_embeddings"] = true;
    io::write_json(folder / "out" / "config.json", json);
    CHECK(loss({out}) == doctest::Approx(expected).epsilon(2e-6));
  }
}

TEST_CASE("program: merge and eval write the folder of the weights where the folder of a run was given") {
  const test::TempFolder folder;
  const io::Path base = folder / "base run" / "final_model", adapter = folder / "adapter run" / "final_model";
  for (const auto& [from, to] : {std::pair{golden / "qwen2", base}, std::pair{golden / "qwen2" / "adapter", adapter}}) {
    std::filesystem::create_directories(to.parent_path());
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  }
  const std::vector<std::string> names = {"--model_name_or_path=" + (folder / "base run").native(),
                                          "--adapter_name_or_path=" + (folder / "adapter run").native()};
  auto words = names;
  words.insert(words.begin(), "merge");
  words.insert(words.end(), {"--output_dir=" + (folder / "out").native(), "--threads=1", "--no_rope_layers=0"});
  const auto merged = test::run_program(LORA_PROGRAM, words);
  CAPTURE(merged.errors);
  REQUIRE(merged.status == 0);
  const io::Json proof = io::read_json(folder / "out" / "lora_merge.json");
  CHECK(proof.at("base") == base.native());
  CHECK(proof.at("adapter") == adapter.native());
  CHECK(test::holds(io::read_file(folder / "out" / "README.md"),
                    "Merged from `" + base.native() + "` and the adapter `" + adapter.native() + "`."));
  (void)loss_of("qwen2", folder / "eval", names);
  const io::Json results = io::read_json(folder / "eval" / "evaluation_results.json");
  CHECK(results.at("model_name_or_path") == base.native());
  CHECK(results.at("adapter_name_or_path") == adapter.native());
  const auto as_markdown = [](std::string path) {
    for (auto at = path.find('_'); at != path.npos; at = path.find('_', at + 2)) path.insert(at, 1, '\\');
    return path;
  };
  CHECK(test::holds(io::read_file(folder / "eval" / "evaluation_report.md"),
                    "- model: " + as_markdown(base.native()) + "\n- adapter: " + as_markdown(adapter.native()) + "\n"));
}

namespace {

/// A model that talks, its adapter, and merges of both.
struct Merger {
  test::TempFolder folder;
  std::string base = (folder / "base").native(), adapter = (folder / "adapter").native();

  explicit Merger(DType dtype = DType::f32) {
    test::write_talking_model(base, dtype);
    test::write_talking_adapter(base, adapter);
  }
  test::Outcome merge(const std::string& output, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"merge", "--model_name_or_path=" + base, "--adapter_name_or_path=" + adapter,
                                      "--output_dir=" + output, "--threads=1"};
    words.insert(words.end(), more.begin(), more.end());
    return test::run_program(LORA_PROGRAM, words);
  }
  std::string place(const char* name) const { return (folder / name).native(); }
};

}  // namespace

TEST_CASE("program: lora_merge.json lists what a merge wrote, with the sizes, and the log says where it is") {
  const Merger m;
  const std::string out = m.place("out");
  const auto merged = m.merge(out + "/", {"--max_shard_size=20KB"});
  CHECK(merged.status == 0);
  CHECK(merged.errors.ends_with("the merged model is in " + out + "/\n"));
  const io::Json proof = io::read_json(io::Path(out) / "lora_merge.json");
  CHECK(proof.at("base") == m.base);
  CHECK(proof.at("adapter") == m.adapter);
  io::Json files = io::Json::object();
  for (const io::Path& entry : io::entries_of(out))
    if (entry.filename() != "lora_merge.json") files[entry.filename().native()] = std::filesystem::file_size(entry);
  CHECK(proof.at("files") == files);
  CHECK(files.size() > 4);
  CHECK_FALSE(files.contains("README.md"));
  // Its place may be replaced, if that is asked for, and a file that became a folder is not its own.
  CHECK(m.merge(out).errors == "error: key output_dir: given " + out +
                                   ", which holds a model (model.safetensors); allowed: a folder without one, or "
                                   "overwrite_output_dir\n");
  std::filesystem::remove(io::Path(out) / "tokenizer.json");
  std::filesystem::create_directory(io::Path(out) / "tokenizer.json");
  CHECK(test::holds(m.merge(out, {"--overwrite_output_dir"}).errors, "it holds tokenizer.json, which no merge wrote"));
}

TEST_CASE("program: README.md of a merged model with layers that do not rotate is whole") {
  const Merger m;
  const auto merged = m.merge(m.place("out"), {"--no_rope_layers=1"});
  REQUIRE(merged.status == 0);
  const auto config = model::Source::open(m.place("out")).config();
  const std::string note = model::rotary_note(config, "model");
  REQUIRE(!note.empty());
  CHECK(io::read_file(io::Path(m.place("out")) / "README.md") ==
        "Merged from `" + m.base + "` and the adapter `" + m.adapter +
            "`.\n\n```python\nfrom transformers import AutoModelForCausalLM\n\nmodel = "
            "AutoModelForCausalLM.from_pretrained(\"path/to/this/folder\")\n```\n" +
            note);
  CHECK(
      test::holds(merged.errors, concat("the merged model has layers without rotary embedding, which transformers "
                                        "does not read from the config.json of a ",
                                        config.model_type, " model; README.md beside it says how to switch it off\n")));
}

TEST_CASE("program: merge keeps the type that is stored, and a model without a tokenizer has none merged") {
  const Merger m(DType::bf16);
  std::filesystem::remove(io::Path(m.base) / "tokenizer.json");
  const auto merged = m.merge(m.place("out"));
  CHECK(merged.status == 0);
  CHECK(test::holds(merged.errors, "Warning: " + m.base + " has no tokenizer, and so has the merged model none\n"));
  CHECK_FALSE(io::is_there(io::Path(m.place("out")) / "tokenizer.json"));
  const auto written = io::Safetensors::open(io::Path(m.place("out")) / "model.safetensors");
  for (const auto& tensor : written.tensors()) CHECK(tensor.dtype == DType::bf16);
}

TEST_CASE("program: each place that merge may not write to is refused with what it is") {
  const Merger m;
  const auto refuse = [&](const std::string& place, const std::string& what, const std::string& allowed,
                          const std::vector<std::string>& more = {"--overwrite_output_dir"}) {
    const auto outcome = m.merge(place, more);
    CHECK(outcome.status == 2);
    CHECK(outcome.output.empty());
    CHECK(outcome.errors ==
          concat("error: key output_dir: given ", place, ", which ", what, "; allowed: ", allowed, "\n"));
  };
  refuse(m.base, "is the base model's own folder", "another");
  refuse(m.base + "/", "is the base model's own folder", "another");
  refuse(m.adapter, "is the adapter's own folder", "another");
  refuse(m.folder.path().native(), "holds " + m.base + " of model_name_or_path", "another");
  const std::string only = "only merges may have written to: ",
                    fresh = "a new or empty folder, or one that holds a merged model", place = m.place("place");
  io::write_file(place, std::string_view("mine"));
  refuse(place, only + "it is no folder", fresh);
  std::filesystem::remove(place);
  io::create_folders(place);
  // A list of files that is none, or is not there.
  const io::Path proof = io::Path(place) / "lora_merge.json";
  for (const char* text : {"{", "[]", "{}", "{\"files\": []}", "{\"files\": 1}"}) {
    CAPTURE(text);
    io::write_file(proof, std::string_view(text));
    refuse(place, only + "it holds lora_merge.json and no lora_merge.json of a merge", fresh);
  }
  io::write_file(io::Path(place) / "a.txt", std::string_view("mine"));
  refuse(place, only + "it holds a.txt and no lora_merge.json of a merge", fresh);
  io::write_file(proof, std::string_view("{\"files\": {\"a.txt\": 5}}"));  // it has 4 bytes
  refuse(place, only + "it holds a.txt, which no merge wrote there", fresh);
  io::write_file(proof, std::string_view("{\"files\": {\"a.txt\": 4}}"));
  refuse(place, "holds a model (model.safetensors)", "a folder without one, or overwrite_output_dir", {});
  CHECK(m.merge(place, {"--overwrite_output_dir"}).status == 0);
  CHECK_FALSE(io::is_there(io::Path(place) / "a.txt"));
}

#if defined(LORA_WITH_YAML)

TEST_CASE("program: merge runs by a file of LLaMA-Factory's that exports") {
  const test::TempFolder folder;
  const std::string yaml = (folder / "merge.yaml").native(), model = (golden / "qwen3").native();
  io::write_file(
      yaml, concat("model_name_or_path: ", model, "\nadapter_name_or_path: ", model,
                   "/adapter\ntemplate: qwen3_nothink\ntrust_remote_code: true\nexport_dir: ",
                   (folder / "out").native(), "\nexport_size: 2\nexport_device: cpu\nexport_legacy_format: false\n"));
  const auto outcome = test::run_program(LORA_PROGRAM, {"merge", yaml, "--threads=1"});
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 0);
  CHECK(outcome.errors.starts_with(concat(
      std::string_view(yaml), ": nothing to do for trust_remote_code, export_device, export_legacy_format; template ",
      "qwen3_nothink is template qwen3_instruct_2507; export_dir ", (folder / "out").native(), " is output_dir ",
      (folder / "out").native(), "; export_size 2 is max_shard_size 2GB\n")));
  REQUIRE(merge("qwen3", folder / "same").status == 0);
  CHECK(io::read_file(folder / "out" / "model.safetensors") == io::read_file(folder / "same" / "model.safetensors"));
}

#endif

TEST_CASE("program: merge never writes over its base") {
  const test::TempFolder folder;
  std::filesystem::copy(golden / "qwen2", folder / "base", std::filesystem::copy_options::recursive);
  const auto outcome =
      test::run_program(LORA_PROGRAM, {"merge", "--model_name_or_path", (folder / "base").native(),
                                       "--adapter_name_or_path", (folder / "base" / "adapter").native(), "--output_dir",
                                       (folder / "base").native(), "--overwrite_output_dir", "true"});
  CHECK(outcome.status == 2);
  CHECK(test::holds(outcome.errors, "which is the base model's own folder"));
  CHECK(io::read_file(folder / "base" / "model.safetensors") == io::read_file(golden / "qwen2" / "model.safetensors"));
}

}  // namespace merge_test
