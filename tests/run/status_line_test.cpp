#include "lora/run/status_line.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/process.hpp"
#include "support/quiet.hpp"

namespace status_line_test {

using namespace lora;
using namespace lora::run;

TEST_CASE("status_line: a bar of 80 columns has the first four facts, whatever the others need") {
  const Facts facts{"step 12345/60000", "loss 12.3456", "12:02:05 left",  "12345 tokens/s",
                    "epoch 0.50",       "lr 0.0002",    "grad norm 0.75", "1.50 GiB"};
  const std::string bar = bar_text(0.5, facts, 79);
  CHECK(bar.size() <= 79);
  for (std::size_t i = 0; i < 4; ++i) CHECK(bar.find(facts[i]) != std::string::npos);
  CHECK(bar.find("grad norm") == std::string::npos);
  CHECK(bar_text(0.5, {"step 1/2"}, 79) == "[==========          ]  step 1/2");
  CHECK(bar_text(1, {"step 1/2"}, 20) == "[========]  step 1/2");
  CHECK(bar_text(2, {"step 1/2"}, 12) == "step 1/2");
  CHECK(bar_text(0, {"step 1/2"}, 5) == "step ");
  const std::string wide = bar_text(0.5, facts, 200);
  for (const auto& fact : facts) CHECK(wide.find(fact) != std::string::npos);
}

TEST_CASE("status_line: without a terminal a count is a line now and then, and none at its end") {
  test::Quiet quiet;
  CountProgress often("evaluating", "records", 3, 0, false);
  often.reached(1, 10);
  often.reached(3, 30);
  CHECK(quiet.text.starts_with("evaluating 1/3 records  0:00 left"));
  CHECK_FALSE(quiet.said("3/3"));
  quiet.text.clear();
  CountProgress seldom("evaluating", "records", 3, 1e6, false);
  seldom.reached(1, 10);
  CHECK(quiet.text.empty());
}

TEST_CASE("status_line: whoever logs is passed on, and the former receiver is back at the end") {
  test::Quiet quiet;
  {
    const StatusLine line(true);
    log::info("during");
  }
  log::info("after");
  CHECK(quiet.text == "during\nafter\n");
}

TEST_CASE("status_line: a bar is drawn on a terminal alone") {
  const auto drawn = [](bool terminal) {
    return test::run_apart([&](int out) {
             dup2(out, STDERR_FILENO);
             StatusLine line(terminal);
             line.show(0.5, {"step 1/2"});
           })
        .text;
  };
  CHECK(drawn(false).empty());
  CHECK(drawn(true).find("  step 1/2") != std::string::npos);
}

TEST_CASE(
    "status_line: what is logged stands above the bar, which is drawn again; without a terminal nothing is erased") {
  const auto shown = [](bool terminal) {
    return test::run_apart([&](int out) {
             dup2(out, STDERR_FILENO);
             StatusLine line(terminal);
             line.show(0.5, {"step 1/2"});
             log::info("a line");
             std::fflush(stderr);
           })
        .text;
  };
  const std::string bar = "\r\033[K" + bar_text(0.5, {"step 1/2"}, 79);
  CHECK(shown(true).starts_with(bar + "\r\033[Ka line\n" + bar));
  CHECK(shown(false) == "a line\n");
}

TEST_CASE("status_line: a bar has a column less than the terminal, and 79 where the terminal tells no width") {
  const auto drawn = [](unsigned short columns) {
    return test::run_apart([&](int out) {
             const int screen = posix_openpt(O_RDWR | O_NOCTTY);
             if (screen < 0 || grantpt(screen) != 0 || unlockpt(screen) != 0) _exit(1);
             const winsize size{24, columns, 0, 0};
             ioctl(screen, TIOCSWINSZ, &size);
             dup2(open(ptsname(screen), O_RDWR | O_NOCTTY), STDERR_FILENO);
             StatusLine line;
             line.show(0.5, {"step 1/2", std::string(60, 'x')});
             char text[512];
             const auto got = read(screen, text, sizeof text);
             if (got < 0 || write(out, text, static_cast<std::size_t>(got)) != got) _exit(1);
             _exit(0);
           })
        .text;
  };
  const std::string widest = bar_text(0.5, {"step 1/2", std::string(60, 'x')}, 79);
  CHECK(drawn(0).ends_with(widest));
  CHECK(drawn(1).ends_with(widest));
  CHECK(drawn(2).ends_with("\r\033[Ks"));
  CHECK(drawn(70).ends_with("step 1/2"));
  CHECK(drawn(71).ends_with("step 1/2  " + std::string(60, 'x')));
}

TEST_CASE("status_line: a time is told in minutes and seconds, from an hour on in hours as well") {
  struct Case {
    double seconds;
    const char* text;
  };
  for (const Case& one : {Case{0.4, "0:00"}, Case{0.5, "0:01"}, Case{9, "0:09"}, Case{59.4, "0:59"}, Case{60, "1:00"},
                          Case{610, "10:10"}, Case{3599.4, "59:59"}, Case{3599.5, "1:00:00"}, Case{3661, "1:01:01"},
                          Case{36610, "10:10:10"}, Case{1e12, "1000000:00:00"}})
    CHECK(duration_text(one.seconds) == one.text);
}

TEST_CASE("status_line: a bar is drawn from eight columns on, and a fact where it fits to the last column") {
  const Facts facts{"abcd", "efgh"};  // 12 columns with what lies before them
  CHECK(bar_text(0.5, facts, 20) == "[===   ]  abcd  efgh");
  CHECK(bar_text(0.5, facts, 19) == "abcd  efgh");
  CHECK(bar_text(0.5, facts, 10) == "abcd  efgh");
  CHECK(bar_text(0.5, facts, 9) == "abcd");
  CHECK(bar_text(0.5, facts, 3) == "abc");
  CHECK(bar_text(0.5, facts, 33) == "[=========          ]  abcd  efgh");
  CHECK(bar_text(0.5, facts, 34) == "[==========          ]  abcd  efgh");
  CHECK(bar_text(-1, facts, 99) == "[                    ]  abcd  efgh");
  CHECK(bar_text(7, facts, 99) == "[====================]  abcd  efgh");
  CHECK(bar_text(0.99, {}, 8) == "[===== ]");
  CHECK(bar_text(0.99, {}, 7).empty());
  // The bar makes room for four facts; a fifth has what is left.
  const Facts five{"a", "b", "c", "d", "e"};
  CHECK(bar_text(1, five, 20) == "[======]  a  b  c  d");
  CHECK(bar_text(1, five, 34) == "[====================]  a  b  c  d");
  CHECK(bar_text(1, five, 37) == "[====================]  a  b  c  d  e");
  CHECK(to_text(five) == "a  b  c  d  e");
  CHECK(to_text(Facts{}).empty());
}

TEST_CASE("status_line: a count tells what is left once something is done, and its speed once there are tokens") {
  test::Quiet quiet;
  CountProgress progress("reading", "files", 3, 0, false);
  progress.reached(0, 0);
  CHECK(quiet.text == "reading 0/3 files\n");
  quiet.text.clear();
  progress.reached(1, 0);
  CHECK(quiet.text == "reading 1/3 files  0:00 left\n");
  quiet.text.clear();
  progress.reached(2, 5);
  CHECK(quiet.text.starts_with("reading 2/3 files  0:00 left  "));
  CHECK(quiet.text.ends_with(" tokens/s\n"));
  quiet.text.clear();
  progress.reached(3, 9);
  progress.reached(4, 9);
  CHECK(quiet.text.empty());
}

TEST_CASE("status_line: on a terminal a count has a bar from the start, which goes when it is cleared") {
  const std::string shown = test::run_apart([](int out) {
                              dup2(out, STDERR_FILENO);
                              CountProgress progress("reading", "files", 3, 1e6, true);
                              progress.reached(1, 0);  // sooner than a tenth of a second after
                              progress.clear();
                              log::info("a line");
                              std::fflush(stderr);
                              _exit(0);
                            }).text;
  CHECK(shown == "\r\033[K" + bar_text(0, {"reading 0/3 files"}, 79) + "\r\033[Ka line\n");
  const std::string ended = test::run_apart([](int out) {
                              dup2(out, STDERR_FILENO);
                              {
                                StatusLine line(true);
                                line.show(1, {"x"});
                              }
                              std::fflush(stderr);
                              _exit(0);
                            }).text;
  CHECK(ended == "\r\033[K" + bar_text(1, {"x"}, 79) + "\r\033[K");
}

TEST_CASE("status_line: a count says nothing for half a minute unless it is told otherwise or has a terminal") {
  const auto shown = [](const auto& count) {
    return test::run_apart([&](int out) {
             dup2(out, STDERR_FILENO);
             count();
             std::fflush(stderr);
             _exit(0);
           })
        .text;
  };
  CHECK(shown([] {
          CountProgress progress("reading", "files", 4);
          progress.reached(1, 0);
        }).empty());
  CHECK(shown([] {
          CountProgress progress("reading", "files", 4, 0);
          progress.reached(1, 0);
        }) == "reading 1/4 files  0:00 left\n");
  // A bar is drawn again as soon as a tenth of a second has passed.
  const std::string bar = shown([] {
    CountProgress progress("reading", "files", 4, 1e6, true);
    const auto begin = CountProgress::Clock::now();
    while (CountProgress::Clock::now() - begin < std::chrono::milliseconds(110)) progress.reached(2, 0);
  });
  const std::string begin = "\r\033[K" + bar_text(0, {"reading 0/4 files"}, 79);
  CHECK(bar.starts_with(begin + "\r\033[K[==========          ]  reading 2/4 files  0:0"));
}

}  // namespace status_line_test
