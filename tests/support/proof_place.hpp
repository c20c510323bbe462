#pragma once

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace lora::proof {

/// Where a call came from: return addresses, which are turned into lines of source only when somebody asks.
class Place {
 public:
  Place() = default;
  static Place here() {
    Place place;
    place.count_ = backtrace(place.frames_.data(), static_cast<int>(place.frames_.size()));
    return place;
  }
  bool operator==(const Place&) const = default;

  /// "function at file:line" of each caller in this program's own sources, this device's own left out, one a line.
  std::string text() const {
    std::array<char, 1 << 16> buffer;
    return std::string(describe(buffer.data(), buffer.size()));
  }

  /// The same without allocating, for signal handlers.
  std::string_view describe(char* buffer, std::size_t size) const {
    const std::size_t length = run_addr2line(buffer, size);
    std::size_t kept = 0, begin = 0;
    for (int lines = 0; begin < length && lines < most_lines;) {
      const std::string_view rest(buffer + begin, length - begin);
      const std::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size() - 1) + 1);
      begin += line.size();
      if (!is_ours(line)) continue;
      for (const char c : line) buffer[kept++] = c;
      ++lines;
    }
    return {buffer, kept};
  }

 private:
  static constexpr int most_lines = 6;

  static bool is_ours(std::string_view line) {
    const auto has = [line](std::string_view part) { return line.find(part) != line.npos; };
    const bool of_device = has("/support/proof_") && has(".hpp:");
    return !has("?") && !has(" /usr/") && !of_device && has(" at ");
  }

  std::size_t run_addr2line(char* buffer, std::size_t size) const {
    // The program's own frames: libraries have no lines.
    Dl_info program{}, info{};
    if (dladdr(reinterpret_cast<const void*>(&Place::here), &program) == 0) return 0;
    const auto base = reinterpret_cast<std::uintptr_t>(program.dli_fbase);
    const std::uintptr_t shift = static_cast<const Elf64_Ehdr*>(program.dli_fbase)->e_type == ET_DYN ? base : 0;
    char path[4096];
    const auto path_length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (path_length <= 0) return 0;
    path[path_length] = '\0';
    char name[] = "addr2line", options[] = "-Cfpi", exe[] = "-e";
    std::array<std::array<char, 24>, depth> texts;
    std::array<char*, depth + 5> arguments{name, options, exe, path};
    std::size_t count = 4;
    for (int i = 0; i < count_; ++i) {
      void* const frame = frames_[static_cast<std::size_t>(i)];
      if (dladdr(frame, &info) == 0 || info.dli_fbase != program.dli_fbase) continue;
      char* const text = texts[static_cast<std::size_t>(i)].data();
      // A return address is behind the call.
      std::snprintf(text, 24, "0x%zx", static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(frame) - shift - 1));
      arguments[count++] = text;
    }
    arguments[count] = nullptr;
    int ends[2];
    if (pipe(ends) != 0) return 0;
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(STDERR_FILENO);
      execvp(name, arguments.data());
      _exit(127);
    }
    close(ends[1]);
    std::size_t length = 0;
    for (ssize_t got = 1; got > 0 && length < size; length += static_cast<std::size_t>(got > 0 ? got : 0))
      got = read(ends[0], buffer + length, size - length);
    close(ends[0]);
    if (child > 0) waitpid(child, nullptr, 0);
    return length;
  }

  static constexpr std::size_t depth = 32;
  std::array<void*, depth> frames_{};
  int count_ = 0;
};

}  // namespace lora::proof
