#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/target.hpp"
#include "lora/comm/facts.hpp"
#include "lora/comm/meeting.hpp"
#include "lora/core/log.hpp"

namespace fuzz_meeting {

namespace {

using namespace lora;
using comm::Meeting;
using comm::Socket;

constexpr std::string_view version = "this build";
// Nobody waits: whoever says nothing more has ended. A hang is the fuzzer's to see.
constexpr std::chrono::duration<double> timeout{1000};

void expect(bool holds) {
  if (!holds) __builtin_trap();
}

void say(const Socket& socket, std::string_view words) {
  if (socket.open()) (void)::send(socket.handle(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// All that has come.
std::string heard(const Socket& socket) {
  std::string all;
  char text[4096];
  for (ssize_t got; (got = ::recv(socket.handle(), text, sizeof text, MSG_DONTWAIT)) > 0;)
    all.append(text, static_cast<std::size_t>(got));
  return all;
}

template <class T>
std::string bytes_of(std::initializer_list<T> numbers) {
  return {reinterpret_cast<const char*>(numbers.begin()), numbers.size() * sizeof(T)};
}

const std::vector<comm::Fact>& facts() {
  static const std::vector<comm::Fact> all{{"the setting seed", "42"}, {"the setting lr", "0.1"}};
  return all;
}

/// `count`: how many bytes of facts it says it has, which then follow; else it has those of this run.
std::string hello(std::uint32_t rank, std::uint32_t size, std::optional<std::uint32_t> count = std::nullopt) {
  const std::string own = "the setting seed\t42\nthe setting lr\t0.1\n";
  std::string words = bytes_of<std::uint32_t>({0x4C6F5261, rank, size});
  words += version;
  words.resize(132);
  words += bytes_of<std::uint32_t>({count.value_or(static_cast<std::uint32_t>(own.size()))});
  return count ? words : words + own;
}

std::string header(std::uint64_t bytes) { return bytes_of<std::uint64_t>({bytes, 0}); }

/// What one side says: before all are there, and after.
struct Speaker {
  std::string before{}, after{};
  bool stays = true;    ///< until all are there
  bool leaves = false;  ///< then hears nothing either
};

/// The first byte has this rank, the number of ranks, which call comes first, and whether a piece that begins as ranks
/// do has facts of its own. Then come pieces: who says it and how, how many bytes, and the bytes.
struct Script {
  static constexpr std::size_t most = 8;

  int rank = 0, size = 2;
  unsigned first_call = 0;
  std::array<Speaker, most> speakers{};
  std::size_t count = 0;  // of speakers, at least 1

  explicit Script(std::string_view input) {
    const auto take = [&] {
      const auto byte = input.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(input.front());
      input.remove_prefix(std::min<std::size_t>(input.size(), 1));
      return unsigned{byte};
    };
    const unsigned first = take();
    size = 2 + static_cast<int>(first >> 1 & 3);
    rank = (first & 1) != 0 ? size - 1 : 0;
    first_call = first >> 3 & 3;
    const bool own_facts = (first & 32) != 0;
    while (!input.empty()) {
      const unsigned how = take();
      const std::string_view bytes = input.substr(0, take());
      input.remove_prefix(bytes.size());
      const std::size_t who = how & (most - 1);
      count = std::max(count, who + 1);
      Speaker& speaker = speakers[who];
      std::string& words = (how & 16) != 0 ? speaker.after : speaker.before;
      if ((how & 8) != 0)
        words += hello(static_cast<std::uint32_t>(who), static_cast<std::uint32_t>(size),
                       own_facts ? std::optional(static_cast<std::uint32_t>(bytes.size())) : std::nullopt);
      if ((how & 32) != 0) words += header(bytes.size());
      words += bytes;
      if ((how & 64) != 0) speaker.stays = false;
      if ((how & 128) != 0) speaker.leaves = true;
    }
    count = std::max<std::size_t>(count, 1);
  }
};

/// One of the calls that ranks make together.
void call(Meeting& meeting, unsigned which) {
  switch (which % 4) {
    case 0:
      expect((meeting.agree(2) & 2) != 0);
      break;
    case 1:
      for (int rank = 0; rank < meeting.size(); ++rank) {
        const std::string text = comm::text_of(meeting, rank, "own words");
        expect(rank > 0 || meeting.rank() > 0 || text == "own words");
      }
      break;
    case 2:
      comm::expect_same(meeting, {{"a", "1"}, {"b", "two"}});
      break;
    default: {
      const std::vector<double> own(static_cast<std::size_t>(meeting.rank()), 0.5);
      std::vector<Index> begins{0};
      for (int r = 0; r < meeting.size(); ++r) begins.push_back(begins.back() + r);
      expect(std::ssize(meeting.all_gather(own, begins)) == begins.back());
    }
  }
}

void calls(Meeting& meeting, unsigned first) {
  for (unsigned i = 0; i < 4; ++i) call(meeting, first + i);
}

/// Ends what a side says, and where it leaves, the connection.
void finish(Socket& socket, const Speaker& speaker) {
  if (!socket.open()) return;
  if (speaker.leaves)
    socket = Socket();
  else
    (void)::shutdown(socket.handle(), SHUT_WR);
}

/// As another rank, which hears rank 0.
void follow(const Script& script) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  Socket own(ends[0]), other(ends[1]);
  const Speaker& speaker = script.speakers[0];
  say(other, speaker.before + speaker.after);
  finish(other, speaker);
  try {
    Meeting meeting({.rank = script.rank, .size = script.size, .address = "here"}, version, timeout, std::move(own),
                    facts());
    calls(meeting, script.first_call);
  } catch (const Error& error) {
    expect(error.what() == printable(error.what()));
  }
  if (other.open())
    expect(heard(other).starts_with(
        hello(static_cast<std::uint32_t>(script.rank), static_cast<std::uint32_t>(script.size))));
}

/// As rank 0, to which strangers come first and then all ranks.
void lead(const Script& script) {
  Socket door(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t size = sizeof address;
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  // An address of no more than its family has the system choose a free name, which is no file's.
  if (::bind(door.handle(), at, sizeof address.sun_family) != 0 || ::listen(door.handle(), SOMAXCONN) != 0 ||
      ::getsockname(door.handle(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return;
  std::vector<Socket> guests;
  const auto come = [&](std::string_view words) {
    guests.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    expect(::connect(guests.back().handle(), at, size) == 0);
    say(guests.back(), words);
  };
  for (std::size_t i = 0; i < script.count; ++i) {
    come(script.speakers[i].before);
    if (!script.speakers[i].stays) finish(guests[i], script.speakers[i]);
  }
  for (int rank = 1; rank < script.size; ++rank)
    come(hello(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(script.size)));
  try {
    Meeting meeting({.rank = 0, .size = script.size, .address = "here"}, version, timeout, std::move(door), facts());
    for (std::size_t i = 0; i < guests.size(); ++i) {
      // Ranks that are what they say they are go on with the words of the speaker of their number.
      const Speaker& speaker = script.speakers[i < script.count ? i : i - script.count + 1];
      say(guests[i], speaker.after);
      finish(guests[i], speaker);
    }
    calls(meeting, script.first_call);
  } catch (const Error& error) {
    expect(error.what() == printable(error.what()));
  }
  // Who does not begin as a rank does is told nothing.
  for (std::size_t i = 0; i < script.count; ++i)
    if (guests[i].open() && !script.speakers[i].before.starts_with(hello(0, 0).substr(0, 4)))
      expect(heard(guests[i]).empty());
}

/// The first number that a file would get which is opened now.
int free_handle() { return Socket(::dup(STDERR_FILENO)).handle(); }

}  // namespace

/// What strangers and ranks say to rank 0, or rank 0 to another.
LORA_FUZZ_TARGET(meeting, data, size) {
  const log::Redirect quiet([](log::Level, std::string_view) {});
  const Script script({reinterpret_cast<const char*>(data), size});
  const int before = free_handle();
  if (script.rank == 0)
    lead(script);
  else
    follow(script);
  expect(free_handle() == before);
}

}  // namespace fuzz_meeting
