#include "lora/run/earlier_run.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "support/file_faults.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"

namespace earlier_run_test {

using namespace lora;
using lora::test::Fault;
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

TEST_CASE("earlier run: what is no checkpoint is told by what it is, with the one that could be meant") {
  const TempFolder temp;
  for (const Index step : {9, 10}) save(temp / "run", step);
  io::create_folders(temp / "run" / "checkpoints" / "checkpoint-11");
  io::create_folders(temp / "run" / "final_model");
  io::write_file(temp / "run" / "final_model" / "adapter_config.json", std::string_view("{}"));
  const auto said = [&](const io::Path& path) {
    return test::message_of<ConfigError>([&] { EarlierRun(going_on(temp / "new", path.native())); });
  };
  const io::Path checkpoints = temp / "run" / "checkpoints";
  const std::string newest = ", of which " + (checkpoints / "checkpoint-10").native() +
                             " is the newest, or auto, for the newest in output_dir";
  const std::string begin = "key resume_from_checkpoint: given " + (temp / "run").native();
  CHECK(said(temp / "run") == begin + ", which is the folder of a run; allowed: one of its checkpoints" + newest);
  CHECK(said(checkpoints) ==
        begin + "/checkpoints, which holds the checkpoints of a run; allowed: one of them" + newest);
  CHECK(said(temp / "run" / "final_model") ==
        begin +
            "/final_model, which holds no trainer_state.json; allowed: auto, or the path of a checkpoint; a new run "
            "starts from an adapter by adapter_name_or_path");
  CHECK(said(checkpoints / "checkpoint-10" / "trainer_state.json") ==
        begin +
            "/checkpoints/checkpoint-10/trainer_state.json, which is no folder; allowed: auto, or the path of a "
            "checkpoint");
  CHECK(said(temp.path()) == "key resume_from_checkpoint: given " + temp.path().native() +
                                 ", which holds no trainer_state.json; allowed: auto, or the path of a checkpoint");
  CHECK(said(checkpoints / "checkpoint-10") == "nothing was thrown");
  // A name says it as well as a state file does: what else is wrong is told when it is read.
  CHECK(said(checkpoints / "checkpoint-11") == "nothing was thrown");
  std::filesystem::rename(checkpoints / "checkpoint-9", temp / "kept");
  CHECK(said(temp / "kept") == "nothing was thrown");
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
  CHECK(quiet.text == "no complete checkpoint in " + checkpoints.native() + ": starting from scratch\n");
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

namespace {

/// A finished run of six steps, its logs, and a run that goes back to the second in one file operation after the other.
struct GoingBack {
  TempFolder temp = TempFolder::in_memory();
  io::Path run = temp / "outer" / "run", first = temp / "first";

  GoingBack() {
    for (Index step = 1; step <= 6; ++step) save(first, step);
    run::RunMetrics metrics;
    metrics.finished = true;
    metrics.steps = 6;
    run::write_training_metrics(first, metrics);
    for (const char* name : {"profile.md", "profile.json", "report.html", "loss.svg"})
      io::write_file(first / name, std::string_view("old"));
    io::Json config;
    for (const char* key : {"model_name_or_path", "dataset", "output_dir", "lora_rank", "save_steps", "on_non_finite"})
      config[key] = nullptr;
    io::write_json(first / "run_config.json", config);
    io::create_folders(first / "final_model");
    io::write_file(first / "final_model" / "README.md", concat("---\n", run::model_card_head));
  }
  void prepare() const {
    std::filesystem::remove_all(temp / "outer");
    io::create_folders(temp / "outer");
    std::filesystem::copy(first, run, std::filesystem::copy_options::recursive);
  }
  io::Path checkpoint(Index step) const { return Checkpoints(run).folder_of(step); }
  void go_back(Index step, Index last = 6) const {
    const EarlierRun earlier(going_on(run, checkpoint(step).native()));
    earlier.take(earlier.find_checkpoint(), last);
  }
};

}  // namespace

TEST_CASE("earlier run: whatever ends a run that goes back, the next goes on there, or as if nothing had been") {
  const Quiet quiet;
  const GoingBack s;
  for (const Fault fault : {Fault::dies, Fault::fails, Fault::loses_unsynced, Fault::loses_data}) {
    CAPTURE(static_cast<int>(fault));
    bool begun = false;
    const auto check = [&](Index at, bool) {
      CAPTURE(at);
      const EarlierRun earlier(going_on(s.run));
      const auto found = earlier.find_checkpoint();
      REQUIRE(found);
      if (found->state.step == 6) {
        CHECK_FALSE(begun);
        CHECK(Checkpoints(s.run).steps().size() == 6);
        CHECK(earlier.folder().has_result());
        CHECK(io::is_there(s.run / "profile.md"));
        earlier.take(found, 6);
        CHECK(earlier.folder().has_result());
        return;
      }
      begun = fault != Fault::fails;  // such a failure is over with its operation
      CHECK(found->state.step == 2);
      earlier.take(found, 6);
      CHECK(Checkpoints(s.run).steps() == std::vector<Index>{1, 2});
      for (const char* gone :
           {"training_metrics.json", "profile.md", "profile.json", "report.html", "loss.svg", "going_back.json"})
        CHECK_FALSE(io::is_there(s.run / gone));
    };
    CHECK(test::sweep_faults(
              s.temp / "outer", fault, [&](Index) { s.prepare(); }, [&] { s.go_back(2); }, check) > 20);
    CHECK((begun || fault == Fault::fails));
  }
}

TEST_CASE("earlier run: one that was killed while it went back may be called back elsewhere by name") {
  const Quiet quiet;
  const GoingBack s;
  s.prepare();
  io::write_json(s.run / "going_back.json", {{"to_step", 2}});
  Checkpoints(s.run).remove(6);
  s.go_back(4);
  CHECK(Checkpoints(s.run).steps() == std::vector<Index>{1, 2, 3, 4});
  CHECK_FALSE(io::is_there(s.run / "going_back.json"));
  CHECK(EarlierRun(going_on(s.run)).find_checkpoint()->state.step == 4);
}

TEST_CASE("earlier run: going back to where no step is left to do is going back all the same") {
  const Quiet quiet;
  const GoingBack s;
  s.prepare();
  s.go_back(2, 2);
  CHECK(Checkpoints(s.run).steps() == std::vector<Index>{1, 2});
  CHECK_FALSE(io::is_there(s.run / "training_metrics.json"));
}

TEST_CASE("earlier run: what has the result of another step, or something to do, loses its training_metrics.json") {
  const Quiet quiet;
  const GoingBack s;
  const auto stays = [&](Index last, bool evaluates) {
    s.prepare();
    const EarlierRun earlier(going_on(s.run));
    earlier.take(earlier.find_checkpoint(), last, evaluates);
    return io::is_there(s.run / "training_metrics.json");
  };
  CHECK(stays(6, false));
  CHECK_FALSE(stays(7, false));
  CHECK_FALSE(stays(6, true));
  save(s.first, 7);
  CHECK_FALSE(stays(7, false));
}

TEST_CASE("earlier run: a damaged checkpoint that auto has passed over stays until the run has one of its own") {
  const Quiet quiet;
  const GoingBack s;
  s.prepare();
  damage(s.run, 6);
  const EarlierRun earlier(going_on(s.run));
  earlier.take(earlier.find_checkpoint(), 6);
  CHECK(io::is_there(s.checkpoint(6)));
}

TEST_CASE("earlier run: whatever ends a new start over an earlier run, what is left is not gone on with") {
  const Quiet quiet;
  const GoingBack s;
  settings::Config anew = going_on(s.run, "");
  anew.overwrite_output_dir = true;
  bool begun = false;
  const auto check = [&](Index at, bool) {
    CAPTURE(at);
    settings::Config both = going_on(s.run);
    both.overwrite_output_dir = true;
    const auto found = EarlierRun(both).find_checkpoint();
    if (found) {
      CHECK_FALSE(begun);
      CHECK(found->state.step == 6);
      CHECK(Checkpoints(s.run).steps().size() == 6);
    }
    begun = begun || !found;
    if (io::is_there(s.run / "going_back.json"))
      CHECK_THROWS_WITH_AS(EarlierRun(going_on(s.run)).find_checkpoint(),
                           doctest::Contains("holds what a run has left that was to be cleared away"), ConfigError);
  };
  const auto start = [&] {
    const EarlierRun earlier(anew);
    (void)earlier.find_checkpoint();
    earlier.take(std::nullopt, 6);
  };
  test::sweep_faults(
      s.temp / "outer", Fault::dies, [&](Index) { s.prepare(); }, start, check);
  CHECK(begun);
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

TEST_CASE("earlier run: what can't be gone on with or into is told with what is allowed") {
  const Quiet quiet;
  const TempFolder temp;
  save(temp / "run", 3);
  const std::string run = (temp / "run").native(), none = (temp / "none").native();
  CHECK(test::message_of<ConfigError>([&] { EarlierRun(going_on(temp / "run", "")); }) ==
        "key output_dir: given " + run +
            ", which is not empty; allowed: an empty folder; hint: resume_from_checkpoint auto goes on, "
            "overwrite_output_dir true starts from scratch");
  CHECK(test::message_of<IoError>([&] { EarlierRun(going_on(temp / "run", none)); }) ==
        "key resume_from_checkpoint: given " + none +
            ", where there is nothing; allowed: auto, or the path of a checkpoint");
  io::write_file(temp / "file", std::string_view("x"));
  CHECK(test::message_of<IoError>([&] { EarlierRun(going_on(temp / "file", "")); }) ==
        "output_dir " + (temp / "file").native() + " is not a folder");
  io::create_folders(temp / "empty");
  CHECK_NOTHROW(EarlierRun(going_on(temp / "empty", "")));
  CHECK_NOTHROW(EarlierRun(going_on(temp / "none", "")));
}

TEST_CASE("earlier run: an input among what a run writes is refused by its key, and one beside it is not") {
  const Quiet quiet;
  const TempFolder temp;
  save(temp / "run", 3);
  io::write_file(temp / "run" / "data.jsonl", std::string_view("x"));
  io::write_file(temp / "run" / "checkpoints" / "data.jsonl", std::string_view("x"));
  const io::Path beside = temp / "run" / "data.jsonl", among = temp / "run" / "checkpoints" / "data.jsonl";
  CHECK_NOTHROW(EarlierRun(going_on(temp / "run"), {{"dataset", beside}}));
  CHECK(test::message_of<ConfigError>([&] {
          EarlierRun(going_on(temp / "run"), {{"dataset", beside}, {"eval_dataset", among}});
        }).starts_with("key eval_dataset: given " + among.native()));
}

TEST_CASE("earlier run: it goes on here with auto or a checkpoint of this folder, by whatever path") {
  const Quiet quiet;
  const TempFolder temp;
  save(temp / "run", 3);
  save(temp / "other", 3);
  std::filesystem::create_directory_symlink(temp / "run", temp / "link");
  const auto here = [&](const io::Path& from) {
    settings::Config config = going_on(temp / "run", from.native());
    config.overwrite_output_dir = true;
    return EarlierRun(config).goes_on_here();
  };
  CHECK(here("auto"));
  CHECK_FALSE(here(""));
  CHECK(here(Checkpoints(temp / "run").folder_of(3)));
  CHECK(here(temp / "link" / "checkpoints" / "checkpoint-3"));
  CHECK_FALSE(here(Checkpoints(temp / "other").folder_of(3)));
}

TEST_CASE("earlier run: one that came into the folder meanwhile is not written over") {
  const Quiet quiet;
  const TempFolder temp;
  const EarlierRun fresh(going_on(temp / "run", ""));
  CHECK_FALSE(fresh.find_checkpoint());
  CHECK(quiet.text.empty());  // nobody has asked for one
  settings::Config anew = going_on(temp / "run", "");
  anew.overwrite_output_dir = true;
  const EarlierRun overwrites(anew);
  save(temp / "run", 3);
  CHECK(test::holds(test::message_of<ConfigError>([&] { (void)fresh.find_checkpoint(); }), "which is not empty"));
  CHECK_FALSE(overwrites.find_checkpoint());
  CHECK(EarlierRun(going_on(temp / "run")).find_checkpoint()->state.step == 3);
}

TEST_CASE("earlier run: what auto finds nothing whole in is told by what is there") {
  const Quiet quiet;
  const TempFolder temp;
  const auto said = [&] {
    return test::message_of<ConfigError>([&] { (void)EarlierRun(going_on(temp / "run")).find_checkpoint(); });
  };
  const std::string begin = "key resume_from_checkpoint: given auto, but " + (temp / "run").native() + " holds ",
                    end = "; hint: overwrite_output_dir true starts from scratch";
  io::create_folders(temp / "run" / "final_model");
  CHECK(said() == begin + "final_model, but no checkpoint to go on with" + end);
  save(temp / "run", 3);
  io::write_file(Checkpoints(temp / "run").folder_of(3) / "adapter.bin", std::string_view("longer than it was"));
  CHECK(said() == begin + "checkpoints, of which none is whole" + end);
  settings::Config both = going_on(temp / "run");
  both.overwrite_output_dir = true;
  CHECK_FALSE(EarlierRun(both).find_checkpoint());
}

TEST_CASE("earlier run: places of the checkpoints to come must be free, up to the last step") {
  const Quiet quiet;
  const TempFolder temp;
  save(temp / "run", 3);
  io::create_folders(Checkpoints(temp / "run").folder_of(6));
  const auto said = [&](Index last) {
    return test::message_of<ConfigError>([&] {
      const EarlierRun earlier(going_on(temp / "run"));
      earlier.take(earlier.find_checkpoint(), last);
    });
  };
  CHECK(said(5) == "nothing was thrown");
  CHECK(said(3) == "nothing was thrown");
  CHECK(said(6).starts_with(concat("key output_dir: ", Checkpoints(temp / "run").folder_of(6).native(),
                                   " is in the way: it holds no trainer_state.json")));
}

TEST_CASE("earlier run: going on from elsewhere, a final_model stays until this run's, and says so") {
  Quiet quiet;
  const GoingBack s;
  s.prepare();
  save(s.temp / "other", 3);
  settings::Config config = going_on(s.run, Checkpoints(s.temp / "other").folder_of(3).native());
  config.overwrite_output_dir = true;
  const EarlierRun earlier(config);
  earlier.take(earlier.find_checkpoint(), 9);
  CHECK(quiet.said("the earlier run's final_model stays until this one is finished\n"));
  CHECK(Checkpoints(s.run).steps().empty());
  CHECK(io::is_there(s.run / "final_model"));
  CHECK_FALSE(io::is_there(s.run / "training_metrics.json"));
  // Where nothing was, nothing is said.
  quiet.text.clear();
  io::create_folders(s.temp / "fresh");
  const EarlierRun fresh(going_on(s.temp / "fresh", ""));
  fresh.take(std::nullopt, 9);
  CHECK(quiet.text.empty());
}

TEST_CASE("earlier run: a run that auto goes on with keeps the final_model of others only where nothing is to do") {
  const Quiet quiet;
  const GoingBack s;
  s.prepare();
  io::write_file(s.run / "final_model" / "notes.txt", std::string_view("mine"));
  const auto said = [&](Index last, bool evaluates) {
    return test::message_of<ConfigError>([&] {
      const EarlierRun earlier(going_on(s.run));
      earlier.take(earlier.find_checkpoint(), last, evaluates);
    });
  };
  CHECK(said(6, false) == "nothing was thrown");
  CHECK(test::holds(said(7, false), "final_model is in the way"));
  CHECK(test::holds(said(6, true), "final_model is in the way"));
  CHECK(test::holds(test::message_of<ConfigError>([&] { s.go_back(2, 2); }), "final_model is in the way"));
  CHECK(Checkpoints(s.run).steps().size() == 6);
}

TEST_CASE("earlier run: what only looks like a run's file is in the way from the beginning, or once it has come") {
  const Quiet quiet;
  const TempFolder temp;
  save(temp / "run", 3);
  const io::Path log = temp / "run" / "training.log", elsewhere = temp / "elsewhere.log";
  io::write_file(elsewhere, std::string_view("mine"));
  const EarlierRun before(going_on(temp / "run"));
  std::filesystem::create_symlink(elsewhere, log);
  const std::string expected = concat("key output_dir: given ", (temp / "run").native(), ", where ", log.native(),
                                      " is in the way, which is no regular file; hint: give another folder, or move "
                                      "that away");
  CHECK(test::message_of<ConfigError>([&] { EarlierRun(going_on(temp / "run")); }) == expected);
  CHECK(test::message_of<ConfigError>([&] { (void)before.find_checkpoint(); }) == expected);
}

TEST_CASE("earlier run: a checkpoint that was named, and asked for a setting, is not read again either") {
  const Quiet quiet;
  const TempFolder temp;
  save(temp / "run", 3, "2001-02-03");
  EarlierRun earlier(going_on(temp / "other", Checkpoints(temp / "run").folder_of(3)));
  CHECK(earlier.setting("date") == "2001-02-03");
  damage(temp / "run", 3);  // would be seen by who reads
  CHECK(earlier.find_checkpoint()->state.step == 3);
  EarlierRun anew(going_on(temp / "other", Checkpoints(temp / "run").folder_of(3)));
  CHECK(test::holds(test::message_of<FormatError>([&] { (void)anew.setting("date"); }), "its checksum is not that"));
}

}  // namespace earlier_run_test
