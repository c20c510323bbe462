// Which adapter folders are a run's: only those may be replaced, or taken for what a finished run has left.
#include "lora/run/result_proof.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "lora/run/folder.hpp"
#include "support/temp_folder.hpp"

namespace result_proof_test {

using namespace lora;
using test::TempFolder;

namespace {

void write_adapter(const io::Path& folder, std::string_view tensors) {
  io::create_folders(folder);
  io::write_file(folder / "README.md",
                 "---\nbase_model: \"b\"\n" + std::string(run::adapter_card_head) + "Fine-tuned\n");
  io::write_file(folder / "adapter_config.json", std::string_view("{}"));
  io::write_file(folder / "adapter_model.safetensors", tensors);
}

}  // namespace

TEST_CASE("result proof: a run's folder has its card and nothing that runs do not write") {
  const TempFolder temp;
  const io::Path folder = temp / "adapter";
  CHECK(run::stranger_in_result(folder) == "it is no folder");
  write_adapter(folder, "tensors");
  for (const char* more : {"config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model"}) {
    io::write_file(folder / more, std::string_view("{}"));
    CHECK(run::stranger_in_result(folder).empty());
  }
  io::write_file(folder / "trainer_state.json", std::string_view("{}"));
  CHECK(run::stranger_in_result(folder) == "it holds trainer_state.json, which no run wrote there");
  CHECK(run::stranger_beside_result(folder, {"trainer_state.json"}).empty());
  io::remove_file(folder / "trainer_state.json");
  io::remove_file(folder / "adapter_config.json");
  CHECK(run::stranger_in_result(folder) == "it has no README.md of a run");
  write_adapter(folder, "tensors");
  io::write_file(folder / "README.md", std::string_view("# My adapter\n"));
  CHECK(run::stranger_in_result(folder) == "it has no README.md of a run");
}

TEST_CASE("result proof: a model's folder has a model's card and files") {
  const TempFolder temp;
  const io::Path folder = temp / "model";
  io::create_folders(folder);
  io::write_file(folder / "README.md", concat("---\n", run::model_card_head, "Fine-tuned\n"));
  for (const char* more : {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors",
                           "model.safetensors.index.json", "model-00001-of-00012.safetensors"}) {
    io::write_file(folder / more, std::string_view("{}"));
    CHECK(run::stranger_in_result(folder).empty());
  }
  for (const std::string other : {"adapter_config.json", "adapter_model.safetensors", "model-1-of-2.safetensors",
                                  "model-00001-of-0000x.safetensors", "model-00001-of-00012.safetensorz"}) {
    io::write_file(folder / other, std::string_view("{}"));
    CHECK(run::stranger_in_result(folder) == concat("it holds ", other, ", which no run wrote there"));
    io::remove_file(folder / other);
  }
}

TEST_CASE("result proof: a folder has a run's result where both final_model and training_metrics.json are there") {
  const TempFolder temp;
  const run::RunFolder folder(temp / "run");
  CHECK_FALSE(folder.has_result());
  write_adapter(folder.final_model(), "tensors");
  CHECK_FALSE(folder.has_result());
  run::RunMetrics metrics;
  metrics.steps = 3;
  run::write_training_metrics(temp / "run", metrics);
  CHECK(folder.has_result());
  CHECK(run::steps_of_metrics(temp / "run") == 3);
  CHECK_FALSE(run::steps_of_metrics(temp / "run", true));  // the run was stopped
  metrics.finished = true;
  run::write_training_metrics(temp / "run", metrics);
  CHECK(run::steps_of_metrics(temp / "run", true) == 3);
  io::write_file(temp / "run" / "training_metrics.json", std::string_view("{\"steps\": 4}"));  // an earlier version's
  CHECK(run::steps_of_metrics(temp / "run", true) == 4);
  std::filesystem::remove_all(folder.final_model());
  CHECK_FALSE(folder.has_result());
}

TEST_CASE("result proof: an adapter's folder has its settings and weights, and no link or folder in their place") {
  const TempFolder temp;
  const io::Path folder = temp / "adapter";
  write_adapter(folder, "tensors");
  for (const char* more : {"special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
                           "chat_template.jinja", "chat_template.json"}) {
    io::write_file(folder / more, std::string_view("{}"));
    CHECK(run::stranger_in_result(folder).empty());
  }
  for (const std::string other : {"model.safetensors", "generation_config.json", "adapter_model.bin"}) {
    io::write_file(folder / other, std::string_view("{}"));
    CHECK(run::stranger_in_result(folder) == concat("it holds ", other, ", which no run wrote there"));
    io::remove_file(folder / other);
  }
  io::remove_file(folder / "README.md");
  CHECK(run::stranger_in_result(folder) == "it has no README.md of a run");
  io::create_folders(folder / "README.md");
  CHECK(run::stranger_in_result(folder) == "it has no README.md of a run");
  std::filesystem::create_directory_symlink(folder, temp / "link");
  CHECK(run::stranger_in_result(temp / "link") == "it is no folder");
  io::write_file(temp / "file", std::string_view("x"));
  CHECK(run::stranger_in_result(temp / "file") == "it is no folder");
  // Of two cards an adapter's counts where its settings are there, else a model's.
  const io::Path both = temp / "both";
  io::create_folders(both);
  io::write_file(both / "README.md", concat(run::adapter_card_head, run::model_card_head));
  io::write_file(both / "model.safetensors", std::string_view("x"));
  CHECK(run::stranger_in_result(both).empty());
  io::write_file(both / "adapter_config.json", std::string_view("{}"));
  CHECK(run::stranger_in_result(both) == "it holds model.safetensors, which no run wrote there");
}

TEST_CASE("result proof: shards of a model are numbered by five digits, of five") {
  const TempFolder temp;
  const auto is_of_model = [&](const char* name) {
    std::filesystem::remove_all(temp / "model");
    io::create_folders(temp / "model");
    io::write_file(temp / "model" / "README.md", concat("---\n", run::model_card_head));
    io::write_file(temp / "model" / name, std::string_view("x"));
    return run::stranger_in_result(temp / "model").empty();
  };
  CHECK(is_of_model("model-00000-of-99999.safetensors"));
  for (const char* name :
       {"model-00001-of-00002.safetensor", "model-0001-of-00002.safetensors", "model-00001-of-000002.safetensors",
        "model-00001_of_00002.safetensors", "model_00001-of-00002.safetensors", "model-0000:-of-00002.safetensors",
        "model-0000.-of-00002.safetensors", "model-00001-oF-00002.safetensors", "Model.safetensors"}) {
    CAPTURE(name);
    CHECK_FALSE(is_of_model(name));
  }
}

}  // namespace result_proof_test
