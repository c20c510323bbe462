// A checkpoint whose trainer_state.json is damaged: passed over, and replaced only where it is a run's all the same.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/temp_folder.hpp"

namespace damaged_state_test {

using namespace lora;
using test::holds;

namespace {

/// A run with the checkpoints 2 and 4, of which the state of the second is damaged.
struct Subject {
  test::TempFolder temp;
  io::Path newest = temp / "run" / "checkpoints" / "checkpoint-4", state = newest / "trainer_state.json";

  Subject() {
    test::write_random_model(temp / "model", {});
    test::write_tokens(temp / "train.jsonl", 8, 1);
    const auto outcome = go_on("4");
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    std::filesystem::resize_file(state, 40);
  }

  test::Outcome go_on(const std::string& max_steps) const {
    return test::run_program(
        LORA_PROGRAM,
        {"train", "--threads=1", "--model_name_or_path=" + (temp / "model").native(), "--max_steps=" + max_steps,
         "--dataset=" + (temp / "train.jsonl").native(), "--output_dir=" + (temp / "run").native(), "--save_steps=2",
         "--resume_from_checkpoint=auto", "--lora_rank=2", "--gradient_accumulation_steps=1"});
  }
};

}  // namespace

TEST_CASE("program: resume auto passes over a checkpoint with a damaged state, and takes its place") {
  for (const std::string_view damage : {"", "{}", "{\"step\": 4", "[]"}) {
    CAPTURE(damage);
    const Subject s;
    if (!damage.empty()) io::write_file(s.state, damage);
    const auto outcome = s.go_on("6");
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 0);
    CHECK(holds(outcome.errors, "skipping " + s.newest.native()));
    CHECK(holds(outcome.errors, "resuming from " + (s.newest.parent_path() / "checkpoint-2").native()));
    CHECK(io::read_json(s.state).at("step") == 4);
  }
}

TEST_CASE("program: a folder with a damaged state that no run can be told to have written stays") {
  const auto stays = [](const char* name, std::string_view content, const char* lost = nullptr) {
    CAPTURE(name);
    const Subject s;
    if (lost != nullptr) std::filesystem::remove(s.newest / lost);
    io::write_file(s.newest / name, content);
    const auto outcome = s.go_on("6");
    CAPTURE(outcome.errors);
    CHECK(outcome.status == 2);
    CHECK(holds(outcome.errors, s.newest.native() + " is in the way"));
    CHECK(io::read_file(s.newest / name) == content);
    CHECK(std::filesystem::file_size(s.newest / "adapter_model.safetensors") > 0);
  };
  stays("README.md", "my own page");
  stays("notes.txt", "mine");
  stays("config.json", "{}", "README.md");
}

}  // namespace damaged_state_test
