// Which adapter folders are a run's: only those may be replaced, or taken for what a finished run has left.
#include "lora/run/result_proof.hpp"

#include <doctest/doctest.h>

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

}  // namespace result_proof_test
