#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "support/file_faults.hpp"
#include "support/message_of.hpp"
#include "support/process.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace output_folder_test {

using namespace lora;
using namespace lora::test;

namespace {

/// What the IoError says that ends `body` in a process of its own.
template <class Body>
std::string message_of_process(const Body& body) {
  const Ending end = run_apart([&](int out) {
    std::string message;
    try {
      message = message_of<IoError>(body);
    } catch (const std::exception& error) {
      message = concat("no IoError: ", std::string_view(error.what()));
    }
    _exit(write(out, message.data(), message.size()) == static_cast<ssize_t>(message.size()) ? 0 : 1);
  });
  CHECK(end.status == 0);
  return end.text;
}

/// Once it `refuses`, no file operation in `folder` succeeds any more.
struct RefusingFiles final : io::FileHook {
  RefusingFiles(io::Path where, int number)
      : folder(std::move(where)), error(number), former(io::set_file_hook(this)) {}
  RefusingFiles(const RefusingFiles&) = delete;
  RefusingFiles& operator=(const RefusingFiles&) = delete;
  ~RefusingFiles() override { io::set_file_hook(former); }

  io::FileVerdict before(const io::FileOperation& operation) override {
    const bool inside = operation.path.native().starts_with(folder.native());
    return {refuses && inside ? error : 0};
  }
  void after(const io::FileOperation&) override {}

  std::atomic<bool> refuses{false};
  const io::Path folder;
  const int error;
  io::FileHook* former;
};

}  // namespace

TEST_CASE("output folder: save_total_limit keeps the newest and the best") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.save_total_limit = 2;
  fine_tune(config);
  CHECK(run::Checkpoints(shop.temp / "run").steps() == std::vector<Index>{21, 24});

  config.output_dir = (shop.temp / "best").native();
  config.load_best_model_at_end = true;
  config.learning_rate = 1;  // the loss goes up
  config.save_total_limit = 1;
  const auto result = fine_tune(config);
  REQUIRE(result.metrics.best_eval_loss);
  CHECK(*result.metrics.best_eval_loss < *result.metrics.eval_loss);
  const auto steps = run::Checkpoints(shop.temp / "best").steps();
  REQUIRE(steps.size() == 2);
  CHECK(steps[1] == 24);
  CHECK(adapter_values(shop.temp / "best" / "final_model") ==
        adapter_values(run::Checkpoints(shop.temp / "best").folder_of(steps[0])));
  CHECK(adapter_values(shop.temp / "best" / "final_model") !=
        adapter_values(run::Checkpoints(shop.temp / "best").folder_of(24)));
}

TEST_CASE("output folder: a folder with something in it is only taken on purpose") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 2;
  io::create_folders(shop.temp / "run");
  io::write_file(shop.temp / "run" / "notes.txt", "mine");
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("which is not empty"), ConfigError);
  CHECK(io::entries_of(shop.temp / "run").size() == 1);
  config.resume_from_checkpoint = "auto";
  CHECK(fine_tune(config).metrics.steps == 2);
  config.resume_from_checkpoint.clear();
  CHECK_THROWS_AS(fine_tune(config), ConfigError);
  config.overwrite_output_dir = true;
  config.max_steps = 1;
  CHECK(fine_tune(config).metrics.steps == 1);
  CHECK(run::Checkpoints(shop.temp / "run").steps() == std::vector<Index>{1});
  CHECK(log_of(shop.temp / "run").size() == 2);
  CHECK(io::read_file(shop.temp / "run" / "notes.txt") == "mine");
}

TEST_CASE("output folder: an output folder that cannot be is a clear error before any work") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  io::write_file(shop.temp / "file", "x");
  config.output_dir = (shop.temp / "file" / "run").native();
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("file"), IoError);
  config.output_dir = (shop.temp / "file").native();
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("is not a folder"), IoError);
}

TEST_CASE("output folder: a folder that may not be written to is a clear error, and the run in it goes on later") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 6;
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  options.on_step = [&](const StepMetrics& metrics) { stop = metrics.step == 4 ? SIGTERM : 0; };
  fine_tune(config, options);
  config.resume_from_checkpoint = "auto";
  const io::Path run = shop.temp / "run";
  const auto before = lasting_files(run);
  using std::filesystem::perms;
  const auto allow = [](const io::Path& path, bool writes) {
    const perms readable = perms::owner_read | perms::group_read | perms::others_read;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
      if (entry.is_regular_file()) permissions(entry.path(), writes ? readable | perms::owner_write : readable);
    const perms enterable = readable | perms::owner_exec | perms::group_exec | perms::others_exec;
    permissions(path, writes ? enterable | perms::owner_write : enterable);
  };
  permissions(shop.temp.path(), perms::others_exec | perms::others_read, std::filesystem::perm_options::add);
  allow(run, false);
  const auto message_of_nobody = [&] {
    return message_of_process([&] {
      constexpr uid_t nobody = 65534;  // permissions don't hold for root
      if (geteuid() == 0 && (setgid(nobody) != 0 || setuid(nobody) != 0)) fail<Error>("cannot be nobody");
      fine_tune(config);
    });
  };
  CHECK(message_of_nobody() ==
        concat("cannot remove ", (run / "training_metrics.json").native(), ": Permission denied"));
  allow(run, true);
  expect_same(before, lasting_files(run));

  const io::Path locked = shop.temp / "locked";
  io::create_folders(locked);
  allow(locked, false);
  config.output_dir = (locked / "new").native();
  CHECK(message_of_nobody() == concat("cannot create folder ", config.output_dir, ": Permission denied"));
  allow(locked, true);

  config.output_dir = run.native();
  for (const int error : {EROFS, EACCES, EDQUOT}) {  // from a moment on, as when a disk shows its first defect
    CAPTURE(error);
    RefusingFiles refusing(run, error);
    options.on_step = [&](const StepMetrics& metrics) { refusing.refuses = metrics.step == 6; };
    options.stop = nullptr;
    CHECK_THROWS_WITH_AS(fine_tune(config, options), doctest::Contains(std::generic_category().message(error).c_str()),
                         IoError);
    CHECK(run::Checkpoints(run).newest()->state.step == 4);
  }
  fine_tune(config);
  run::Checkpoints(run).remove(4);
  config.output_dir = (shop.temp / "whole").native();
  fine_tune(config);
  expect_same(lasting_files(shop.temp / "whole"), lasting_files(run));
}

TEST_CASE("output folder: two runs in one folder are kept apart") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.resume_from_checkpoint = "auto";
  io::create_folders(shop.temp / "run");
  const io::Lock other(shop.temp / "run");
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("another run is using"), IoError);
}

TEST_CASE("output folder: bad data ends the run before output_dir exists") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  const auto expect = [&](std::string_view data, const char* message) {
    CAPTURE(message);
    io::write_file(shop.temp / "bad.jsonl", data);
    config.dataset = {(shop.temp / "bad.jsonl").native()};
    CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains(message), FormatError);
    CHECK_FALSE(std::filesystem::exists(shop.temp / "run"));
  };
  expect("{\"input_ids\":[1,2],\"labels\":[1,2]}\n{\"input_ids\":[1,2]}\n", "bad.jsonl:2");
  expect("{\"input_ids\":[1,2,61],\"labels\":[1,2,61]}\n", "61");
  expect("{\"input_ids\":[1,2],\"labels\":[-100,-100]}\n", "there is nothing to learn");
  expect("", "no records");
}

TEST_CASE("output folder: evaluation data is read before training, not after") {
  const Quiet quiet;
  const Workshop shop;
  for (const char* bad :
       {"{\"input_ids\": [1, 2, 9999], \"labels\": [1, 2, 9999]}\n",
        "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n", "{\"input_ids\": [1, 2], \"labels\": [1]}\n"}) {
    Config config = shop.config("unread");
    io::write_file(shop.temp / "bad.jsonl", std::string_view(bad));
    config.eval_dataset = {(shop.temp / "bad.jsonl").native()};
    CHECK_THROWS_AS(fine_tune(config), FormatError);
    CHECK_FALSE(std::filesystem::exists(shop.temp / "unread"));
  }
}

TEST_CASE("output folder: a full disk is a clear error and leaves the last checkpoint good") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 6;
  const std::string message = message_of_process([&] {
    signal(SIGXFSZ, SIG_IGN);
    RunOptions options;
    options.on_step = [](const StepMetrics& metrics) {
      if (metrics.step != 5) return;
      const rlimit limit{4000, 4000};
      setrlimit(RLIMIT_FSIZE, &limit);
    };
    fine_tune(config, options);
  });
  CAPTURE(message);
  CHECK(message.starts_with(concat("cannot write ", (shop.temp / "run/checkpoints/checkpoint-6.").native())));
  CHECK(message.ends_with("/adapter_model.safetensors: File too large"));
  CHECK(run::Checkpoints(shop.temp / "run").steps() == std::vector<Index>{3});
  CHECK(run::Checkpoints(shop.temp / "run").newest()->state.step == 3);
  config.resume_from_checkpoint = "auto";
  CHECK(fine_tune(config).metrics.resumed_from_step == 3);
  config.output_dir = (shop.temp / "whole").native();
  fine_tune(config);
  expect_same(lasting_files(shop.temp / "whole"), lasting_files(shop.temp / "run"));
}

TEST_CASE("output folder: checkpoints removed while it runs do not stop it") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  RunOptions options;
  options.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step == 8) std::filesystem::remove_all(shop.temp / "run" / "checkpoints");
  };
  CHECK(fine_tune(config, options).metrics.steps == 24);
  CHECK(run::Checkpoints(shop.temp / "run").steps().front() == 9);
}

TEST_CASE("output folder: a best checkpoint that was removed or damaged while it runs is missed in words") {
  Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.load_best_model_at_end = true;
  config.learning_rate = 1;  // the loss goes up: the first evaluation, after step 4, stays the best
  for (const bool removed : {true, false}) {
    CAPTURE(removed);
    config.output_dir = (shop.temp / (removed ? "removed" : "damaged")).native();
    const run::Checkpoints checkpoints(config.output_dir);
    RunOptions options;
    options.on_step = [&](const StepMetrics& metrics) {
      if (metrics.step != 23) return;
      const io::Path adapter = checkpoints.folder_of(4) / "adapter_model.safetensors";
      REQUIRE(std::filesystem::exists(adapter));
      removed ? static_cast<void>(std::filesystem::remove_all(checkpoints.folder_of(4)))
              : std::filesystem::resize_file(adapter, 100);
    };
    quiet.text.clear();
    const auto result = fine_tune(config, options);
    CHECK(adapter_values(result.final_model) == adapter_values(checkpoints.folder_of(24)));
    CHECK(quiet.said(concat("cannot take the best, step 4's: ", std::string_view(removed ? "no checkpoint at " : ""),
                            checkpoints.folder_of(4).native())));
    CHECK(quiet.said("final_model is the last step's"));
  }
}

}  // namespace output_folder_test
