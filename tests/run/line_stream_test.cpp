#include "lora/run/line_stream.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <string>
#include <utility>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/run/metrics_log.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"

namespace line_stream_test {

using namespace lora;
using namespace lora::run;

namespace {

/// A pipe whose writer gets an error, not a signal, once its reader has gone.
struct Pipe {
  std::array<int, 2> ends{-1, -1};
  void (*former)(int) = ::signal(SIGPIPE, SIG_IGN);

  Pipe() { REQUIRE(::pipe(ends.data()) == 0); }
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
    ::signal(SIGPIPE, former);
  }
  std::string read() const {
    std::array<char, 4096> text{};
    const auto size = ::read(ends[0], text.data(), text.size());
    return std::string(text.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
  }
  void close_reader() { ::close(std::exchange(ends[0], -1)); }
};

StepMetrics step_metrics(Index step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 1.0 / 3;
  return metrics;
}

}  // namespace

TEST_CASE("line stream: a reader has each line of trainer_log.jsonl at once, and nothing of events that have none") {
  const test::TempFolder folder;
  const Pipe pipe;
  MetricsLog log(folder.path());
  LineStream stream(pipe.ends[1], "the pipe");
  std::string all;
  const auto take = [&](const run::Event& event) {
    log.take(event);
    stream.take(event);
  };
  take(StepEvent{step_metrics(1), true});
  all += pipe.read();
  CHECK(io::parse_json(all, "line").at("step") == 1);
  take(StepEvent{step_metrics(2)});
  take(SavingEvent{2});
  take(EvaluationEvent{model::Evaluation{.step = 2, .loss_sum = 3, .labeled = 2}});
  take(FinishedEvent{});
  all += pipe.read();
  CHECK(all == io::read_file(folder / "trainer_log.jsonl"));
}

TEST_CASE("line stream: a reader that goes is told of once, and the run goes on") {
  const test::Quiet quiet;
  Pipe pipe;
  LineStream stream(pipe.ends[1], "the pipe");
  pipe.close_reader();
  for (Index step = 1; step < 4; ++step) stream.take(StepEvent{step_metrics(step), true});
  CHECK(quiet.text == "nobody reads the pipe any more (Broken pipe): lines go on in trainer_log.jsonl alone\n");
}

TEST_CASE("line stream: a reader that does not read is waited for a while, and no longer") {
  test::Quiet quiet;
  Pipe pipe;
  for (const bool waits : {true, false}) {  // whether its writer would
    ::fcntl(pipe.ends[1], F_SETFL, waits ? 0 : O_NONBLOCK);
    LineStream stream(pipe.ends[1], "the pipe", 0);
    quiet.text.clear();
    for (Index step = 1; step < 2000 && quiet.text.empty(); ++step) stream.take(StepEvent{step_metrics(step), true});
    CHECK(quiet.text ==
          "nobody reads the pipe any more (it was not read for 0 seconds): lines go on in trainer_log.jsonl alone\n");
  }
  std::size_t read = 0;
  for (; read < (std::size_t{1} << 15);) read += pipe.read().size();  // what fitted is there
}

TEST_CASE("line stream: a descriptor that is closed or only read from is refused") {
  Pipe pipe;
  CHECK_NOTHROW(LineStream::expect_open(pipe.ends[1], "the pipe"));
  const std::string closed = "key report_to: given jsonl, but the pipe is closed";
  CHECK(test::message_of<IoError>([&] { LineStream::expect_open(pipe.ends[0], "the pipe"); }) == closed);
  const int gone = pipe.ends[0];
  pipe.close_reader();
  CHECK(test::message_of<IoError>([&] { LineStream::expect_open(gone, "the pipe"); }) == closed);
}

}  // namespace line_stream_test
