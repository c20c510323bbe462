#include "lora/run/earlier_run.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>

#include "support/quiet.hpp"
#include "support/temp_folder.hpp"

namespace earlier_run_test {

using namespace lora;
using lora::test::Quiet;
using lora::test::TempFolder;
using run::Checkpoints;
using run::EarlierRun;

namespace {

void save(const io::Path& output, Index step, std::string_view date = {}) {
  run::RunState state;
  state.step = step;
  state.settings = {{"date", date}};
  Checkpoints(output).save(state, [&](const io::Path& folder) { io::write_file(folder / "adapter.bin", "adapter"); });
}

void damage(const io::Path& output, Index step) {
  io::write_file(Checkpoints(output).folder_of(step) / "adapter.bin", std::string_view("Adapter"));
}

settings::Config going_on(const io::Path& output, const std::string& from = "auto") {
  settings::Config config;
  config.output_dir = output.native();
  config.resume_from_checkpoint = from;
  return config;
}

}  // namespace

TEST_CASE("earlier run: a setting is that of the checkpoint to go on with, else null") {
  const Quiet quiet;
  const TempFolder temp;
  CHECK(EarlierRun(going_on(temp / "run")).setting("date").is_null());
  save(temp / "run", 3, "2001-02-03");
  CHECK(EarlierRun(going_on(temp / "run")).setting("date") == "2001-02-03");
  CHECK(EarlierRun(going_on(temp / "other", Checkpoints(temp / "run").folder_of(3))).setting("date") == "2001-02-03");
  settings::Config anew = going_on(temp / "run", "");
  anew.overwrite_output_dir = true;
  CHECK(EarlierRun(anew).setting("date").is_null());
  damage(temp / "run", 3);
  CHECK(EarlierRun(going_on(temp / "run")).setting("date").is_null());
  save(temp / "run", 3);  // by a template that prints none
  CHECK(EarlierRun(going_on(temp / "run")).setting("date") == "");
  CHECK(EarlierRun(going_on(temp / "run")).setting("nothing").is_null());
}

TEST_CASE("earlier run: asking for a setting says nothing, and what it found is not read again") {
  const Quiet quiet;
  const TempFolder temp;
  save(temp / "run", 3, "2001-02-03");
  save(temp / "run", 6);
  damage(temp / "run", 6);
  EarlierRun earlier(going_on(temp / "run"));
  CHECK(earlier.setting("date") == "2001-02-03");
  CHECK(quiet.text.empty());
  damage(temp / "run", 3);  // would be seen by who reads
  const auto found = earlier.find_checkpoint();
  REQUIRE(found);
  CHECK(found->state.step == 3);
  CHECK(quiet.said(concat("skipping ", Checkpoints(temp / "run").folder_of(6).native())));
  save(temp / "run", 9);
  CHECK(earlier.find_checkpoint()->state.step == 9);
}

TEST_CASE("earlier run: where none is complete it says so, and what was left unfinished goes") {
  const Quiet quiet;
  const TempFolder temp;
  const io::Path checkpoints = temp / "run" / "checkpoints";
  const auto left = [](const io::Path& path, io::Temporary kind = io::Temporary::writing) {
    io::create_folders(io::temporary_name(path, kind));
  };
  left(temp / "run" / "final_model");
  left(temp / "run" / "final_model", io::Temporary::removing);
  left(checkpoints / "checkpoint-3");
  io::write_file(io::temporary_name(temp / "run" / "run_config.json", io::Temporary::partial), std::string_view("{"));
  CHECK_FALSE(EarlierRun(going_on(temp / "run")).find_checkpoint());
  CHECK(quiet.said("no complete checkpoint in "));
  CHECK(io::entries_of(temp / "run") == std::vector<io::Path>{checkpoints});
  CHECK(std::filesystem::is_empty(checkpoints));
}

TEST_CASE("earlier run: what only looks unfinished, or is another program's, stays") {
  const Quiet quiet;
  const TempFolder temp;
  const io::Path run = temp / "run", checkpoints = run / "checkpoints";
  io::create_folders(checkpoints);
  io::create_folders(run / "chapters.writing");
  io::write_file(run / "chapters.writing" / "1", std::string_view("a novel"));
  io::write_file(run / "a.replaced", std::string_view("c"));
  io::create_folders(run / "final_model.0123456789abcdef01234567.lora-writing");   // whose seal is not right
  io::create_folders(io::temporary_name(run / "merged", io::Temporary::writing));  // of a merge that goes on
  io::create_folders(io::temporary_name(checkpoints / "Qwen", io::Temporary::writing));
  std::filesystem::create_directory_symlink(run / "chapters.writing",
                                            io::temporary_name(run / "final_model", io::Temporary::removing));
  const auto count = [&] { return std::distance(std::filesystem::recursive_directory_iterator(run), {}); };
  const auto before = count();
  CHECK_FALSE(EarlierRun(going_on(run)).find_checkpoint());
  CHECK(count() == before);
}

TEST_CASE("earlier run: a final_model that had to make room for one that never came is put back") {
  const Quiet quiet;
  const TempFolder temp;
  io::create_folders(io::temporary_name(temp / "run" / "final_model", io::Temporary::replaced));
  run::RunFolder(temp / "run").recover();
  CHECK(io::entries_of(temp / "run") == std::vector<io::Path>{temp / "run" / "final_model"});
  io::create_folders(io::temporary_name(temp / "run" / "final_model", io::Temporary::replaced));
  run::RunFolder(temp / "run").recover();
  CHECK(io::entries_of(temp / "run") == std::vector<io::Path>{temp / "run" / "final_model"});
}

TEST_CASE("earlier run: a folder in use is only for who goes on or starts anew, which removes what runs write") {
  const Quiet quiet;
  const TempFolder temp;
  save(temp / "run", 3);
  save(temp / "other", 3);
  io::write_file(temp / "run" / "notes.txt", std::string_view("mine"));
  CHECK_THROWS_WITH_AS(EarlierRun(going_on(temp / "run", "")), doctest::Contains("which is not empty"), ConfigError);
  CHECK_THROWS_AS(EarlierRun(going_on(temp / "run", Checkpoints(temp / "other").folder_of(3))), ConfigError);
  CHECK_THROWS_WITH_AS(EarlierRun(going_on(temp / "run" / "notes.txt")), doctest::Contains("is not a folder"), IoError);
  CHECK_NOTHROW(EarlierRun(going_on(temp / "run", Checkpoints(temp / "run").folder_of(3))));
  settings::Config anew = going_on(temp / "run", "");
  anew.overwrite_output_dir = true;
  EarlierRun(anew).take(std::nullopt, 9);
  CHECK(io::entries_of(temp / "run") == std::vector<io::Path>{temp / "run" / "notes.txt"});
}

TEST_CASE("earlier run: a stranger's final_model is named before anything is removed, also where no step is left") {
  const Quiet quiet;
  const TempFolder temp;
  save(temp / "run", 3);
  save(temp / "other", 3);
  io::create_folders(temp / "run" / "final_model");
  io::write_file(temp / "run" / "final_model" / "notes.txt", std::string_view("mine"));
  settings::Config config = going_on(temp / "run", Checkpoints(temp / "other").folder_of(3));
  config.overwrite_output_dir = true;
  const EarlierRun run(config);
  CHECK_THROWS_WITH_AS(run.take(run.find_checkpoint(), 3), doctest::Contains("final_model is in the way"), ConfigError);
  CHECK(Checkpoints(temp / "run").own_steps() == std::vector<Index>{3});
}

}  // namespace earlier_run_test
