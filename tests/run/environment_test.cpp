#include "lora/run/environment.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace environment_test {

using namespace lora;
using namespace lora::run;

TEST_CASE("environment: a command line is quoted as a shell reads it") {
  const std::vector<const char*> words = {"lora", "train", "--a=b", "two words", "it's", "", "$HOME", "x,y"};
  CHECK(quoted_command(words) == "lora train --a=b 'two words' 'it'\\''s' '' '$HOME' x,y");
}

TEST_CASE("environment: the peak of memory holds what was touched") {
  const double before = resident_memory_gib();
  CHECK(before > 0);
  {
    std::vector<char> block(std::size_t{64} << 20);
    std::memset(block.data(), 1, block.size());
    asm volatile("" : : "r"(block.data()) : "memory");  // else a compiler may see that nobody reads it
    CHECK(resident_memory_gib() > 0.05);
  }
  CHECK(peak_memory_gib() >= before);
  CHECK(peak_memory_gib() >= 64.0 / 1024);
}

TEST_CASE("environment: the facts of the machine and the build") {
  const std::string text = describe_environment(3);
  for (const char* line : {"build: lora ", "\nsystem: Linux", "\nthreads: 3 of ", "\nmemory: "})
    CHECK(text.find(line) != std::string::npos);
}

TEST_CASE("environment: what a shell would read otherwise is quoted, and nothing else") {
  const auto quoted = [](const std::string& word) {
    const char* const words[] = {word.c_str()};
    return quoted_command(words);
  };
  for (const char c : std::string_view("azAZ09_-./=,:+@%")) CHECK(quoted(std::string(1, c)) == std::string(1, c));
  for (const char c : std::string_view(" ;&|<>*?~#()[]{}!\\\"`\n")) {
    const std::string word(1, c);
    CHECK(quoted(word) == "'" + word + "'");
    CHECK(quoted("a" + word) == "'a" + word + "'");
  }
  CHECK(quoted("zwölf") == "'zwölf'");
  CHECK(quoted_command({}).empty());
}

TEST_CASE("environment: a field of the process's status that is not there is 0") {
  CHECK(run::detail::status_gib("VmNothing:") == 0);
  CHECK(run::detail::status_gib("VmRSS:") > 0);
  CHECK(run::detail::status_gib("VmRSS:") < 1000);
  const double before = run::detail::status_gib("VmHWM:"), peak = peak_memory_gib();  // which grows
  CHECK(before <= peak);
  CHECK(peak <= run::detail::status_gib("VmHWM:"));
}

TEST_CASE("environment: the time is told to the minute, as it is in Greenwich") {
  const std::time_t before = std::time(nullptr);
  const std::string text = time_text();
  std::tm fields{};
  const char* const rest = strptime(text.c_str(), "%Y-%m-%d %H:%M UTC", &fields);
  REQUIRE(rest != nullptr);
  CHECK(*rest == '\0');
  CHECK(text.size() == 20);
  const std::time_t told = timegm(&fields);
  CHECK(told <= std::time(nullptr));
  CHECK(told > before - 60);
}

TEST_CASE("environment: each line has its own fact") {
  utsname system{};
  REQUIRE(uname(&system) == 0);
  const double memory = static_cast<double>(cpu::total_memory()) / 0x1p30;
  CHECK(describe_environment(3) == concat("build: ", describe_build(), "\nsystem: ", std::string_view(system.sysname),
                                          " ", std::string_view(system.release), " ", std::string_view(system.machine),
                                          "\nprocessor: ", cpu::processor_name(), "\nthreads: 3 of ",
                                          cpu::available_threads(), "\nmemory: ", std::round(memory * 10) / 10,
                                          " GiB\n"));
  const std::string build = describe_build();
#if defined(__x86_64__)
  CHECK(build.starts_with("lora " LORA_VERSION " for x86-64"));
#elif defined(__aarch64__)
  CHECK(build.starts_with("lora " LORA_VERSION " for aarch64"));
#endif
#ifdef __clang__
  CHECK(build.ends_with(concat(", clang ", __clang_version__)));
#else
  CHECK(build.ends_with(concat(", gcc ", __VERSION__)));
#endif
  CHECK(build.find("  ") == std::string::npos);
}

TEST_CASE("environment: what a build uses of the processor is named by words of its flags, one behind the other") {
  const std::string build = describe_build(), begin = "lora " LORA_VERSION " for ";
  REQUIRE(build.starts_with(begin));
  std::istringstream features(build.substr(begin.size(), build.find(", ", begin.size()) - begin.size()));
  const std::vector<std::string> known = {"x86-64",  "aarch64",    "sse4.2",   "avx2", "fma",
                                          "avx512f", "avx512bf16", "amx-bf16", "bf16"};
  auto next = known.begin();
  for (std::string word; features >> word; ++next) {
    CAPTURE(word);
    next = std::find(next, known.end(), word);
    REQUIRE(next != known.end());
  }
}

TEST_CASE("environment: the peak of memory is no more than the system counts, in GiB") {
  const double peak = peak_memory_gib();
  rusage usage{};
  REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);  // which has what the process was before, too
  CHECK(peak > 0);
  CHECK(peak < 1.1 * static_cast<double>(usage.ru_maxrss) / 0x1p20);
}

}  // namespace environment_test
