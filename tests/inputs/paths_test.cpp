#include "lora/inputs/paths.hpp"

#include <doctest/doctest.h>

#include <string>

#include "lora/io/files/file.hpp"
#include "support/temp_folder.hpp"

namespace paths_test {

using namespace lora;

TEST_CASE("paths: what a run reads stands under the key that names it, lists of records aside") {
  const test::TempFolder folder;
  io::create_folders(folder / "run" / "final_model");
  io::write_file(folder / "run" / "final_model" / "adapter_config.json", std::string_view("{}"));
  io::create_folders(folder / "evaluation");
  settings::Config config;
  config.model_name_or_path = "name";
  config.adapter_name_or_path = (folder / "run").native();
  config.dataset = {"a.jsonl", "listed", "b.jsonl"};
  config.eval_dataset = {"c.jsonl", "other list"};
  config.compare_with = {(folder / "evaluation").native(), "results.json"};
  data::RecordLists lists;
  lists["listed"].add_text("x");
  lists["other list"].add_text("y");
  const auto text = [&] {
    std::string all;
    for (const auto& input : inputs::paths_of(config, "found", lists))
      all += concat(input.first, "=", input.second.native(), "\n");
    return all;
  };
  const std::string rest = "dataset=a.jsonl\ndataset=b.jsonl\neval_dataset=c.jsonl\ncompare_with=" +
                           (folder / "evaluation" / "evaluation_results.json").native() +
                           "\ncompare_with=results.json\n";
  CHECK(text() ==
        "model_name_or_path=found\nadapter_name_or_path=" + (folder / "run" / "final_model").native() + "\n" + rest);
  config.adapter_name_or_path.clear();
  config.model_preset = "tiny";
  CHECK(text() == "tokenizer_name_or_path=found\n" + rest);
}

}  // namespace paths_test
