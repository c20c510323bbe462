// Ranks that meet at an address: what they gather, who is refused, and what all are told where one fails. Ranks are
// threads here.

#include "lora/comm/meeting.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lora/comm/facts.hpp"
#include "lora/core/hash.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"

namespace meeting_test {

using namespace lora;
using namespace lora::test;
using comm::Meeting;
using comm::MeetingPlace;

namespace {

constexpr std::chrono::duration<double> patience{60};

int listening_on(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

/// A port that nobody listens at.
int free_port() {
  const int socket = listening_on(0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

MeetingPlace place_of(int rank, int size, int port) {
  return {.rank = rank, .size = size, .address = "127.0.0.1", .port = port};
}

/// What f(rank) ended with as each of the ranks: the text of its error, or nothing.
std::vector<std::string> ends_of(int ranks, const std::function<void(int)>& f) {
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&f, &end = ends[static_cast<std::size_t>(rank)], rank] {
      try {
        f(rank);
      } catch (const std::exception& error) {
        end = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return ends;
}

/// Connects, says this, and waits until the other side has closed, taking nothing before
/// `before_reading` is done. Returns what came.
std::string answer_to(int port, std::string_view words, bool closes = false,
                      const std::function<void()>& before_reading = {}) {
  int socket = -1;
  for (int tries = 0; tries < 600; ++tries) {
    socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) break;
    ::close(socket);
    socket = -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (socket < 0) return "nobody is there";
  (void)::send(socket, words.data(), words.size(), MSG_NOSIGNAL);
  if (before_reading) before_reading();
  std::string all;
  char text[256];
  if (!closes)
    for (ssize_t got; (got = ::recv(socket, text, sizeof text, 0)) > 0;)
      all.append(text, static_cast<std::size_t>(got));
  ::close(socket);
  return all;
}

/// The first words of a rank, as they go over the wire. `count`: how many bytes of facts it says it has.
std::string hello(std::uint32_t rank, std::uint32_t size, std::string_view version, std::string_view facts = "",
                  std::optional<std::uint32_t> count = std::nullopt) {
  const std::uint32_t numbers[] = {0x4C6F5261, rank, size};
  const std::uint32_t bytes = count.value_or(static_cast<std::uint32_t>(facts.size()));
  std::string words(sizeof numbers + 120 + sizeof bytes, '\0');
  std::memcpy(words.data(), numbers, sizeof numbers);
  std::copy(version.begin(), version.end(), words.begin() + sizeof numbers);
  std::memcpy(words.data() + sizeof numbers + 120, &bytes, sizeof bytes);
  return words.append(facts);
}

/// The same of a processor with the other order of bytes.
std::string reversed_hello(std::uint32_t rank, std::uint32_t size, std::string_view version) {
  std::string words = hello(rank, size, version);
  for (std::ptrdiff_t at = 0; at < 12; at += 4) std::reverse(words.begin() + at, words.begin() + at + 4);
  return words;
}

}  // namespace

TEST_CASE("meeting: any number of ranks gathers what each has, whoever comes first") {
  const Quiet quiet;
  for (const int ranks : {2, 3, 5}) {
    CAPTURE(ranks);
    const int port = free_port();
    const auto ends = ends_of(ranks, [&](int rank) {
      if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      Meeting meeting(place_of(rank, ranks, port), "this build", patience);
      CHECK(meeting.rank() == rank);
      CHECK(meeting.size() == ranks);
      CHECK_FALSE(meeting.exchanges());
      // Of the first nothing, of the others more than a socket holds at once.
      std::vector<Index> begins{0};
      for (int r = 0; r < ranks; ++r) begins.push_back(begins.back() + 1000001 * r);
      std::vector<std::byte> bytes(static_cast<std::size_t>(begins.back()));
      const auto at = static_cast<std::size_t>(rank);
      for (Index i = begins[at]; i < begins[at + 1]; ++i)
        bytes[static_cast<std::size_t>(i)] = static_cast<std::byte>(rank + i % 7);
      meeting.gather_on_host(bytes, begins);
      bool right = true;
      for (int r = 0; r < ranks; ++r)
        for (Index i = begins[static_cast<std::size_t>(r)]; i < begins[static_cast<std::size_t>(r) + 1]; ++i)
          right = right && bytes[static_cast<std::size_t>(i)] == static_cast<std::byte>(r + i % 7);
      CHECK(right);
      CHECK(comm::text_of(meeting, ranks - 1, concat("said by ", rank)) == concat("said by ", ranks - 1));
      CHECK(meeting.agree(1u << rank) == (1u << ranks) - 1);
      CHECK(meeting.traffic().sent_bytes > 0);
      CHECK(meeting.traffic().received_bytes > static_cast<double>(begins.back()) / ranks);
      CHECK(meeting.traffic().seconds > 0);
    });
    for (const std::string& end : ends) CHECK(end == "");
  }
}

TEST_CASE("meeting: what ranks have sent and received is counted, with what tells one message from another") {
  const Quiet quiet;
  const int port = free_port();
  std::vector<comm::Traffic> begun(3), done(3);
  const auto ends = ends_of(3, [&](int rank) {
    Meeting meeting(place_of(rank, 3, port), "this build", patience);
    const auto at = static_cast<std::size_t>(rank);
    begun[at] = meeting.traffic();
    std::vector<std::byte> bytes(1000);
    meeting.gather_on_host(bytes, std::vector<Index>{0, 10, 110, 1000});
    done[at] = meeting.traffic();
  });
  for (const std::string& end : ends) CHECK(end == "");
  constexpr double hello_bytes = 136, header = 16;
  const auto check = [](const comm::Traffic& traffic, double sent, double received) {
    CHECK(traffic.sent_bytes == sent);
    CHECK(traffic.received_bytes == received);
  };
  check(begun[0], 2 * header, 0);
  check(done[0], 2 * header + 2 * (header + 1000), 100 + 890);
  for (const std::size_t other : {1u, 2u}) {
    check(begun[other], hello_bytes, 0);
    check(done[other], hello_bytes + header + (other == 1 ? 100 : 890), 1000);
    CHECK(begun[other].seconds == 0);
    CHECK(done[other].seconds > 0);
  }
}

TEST_CASE("meeting: of a version that is longer than what is said of it the beginning is compared") {
  const Quiet quiet;
  const auto ends = [](const std::string& first, const std::string& second) {
    const int port = free_port();
    return ends_of(2, [&](int rank) {
      Meeting meeting(place_of(rank, 2, port), rank == 0 ? first : second, patience);
      CHECK(meeting.agree(2) == 2);
    });
  };
  const std::string long_one(119, 'v');
  CHECK(ends(long_one + "one", long_one + "other") == std::vector<std::string>{"", ""});
  const auto differ = ends(long_one, long_one.substr(1) + "w");
  CHECK(differ[0] ==
        "rank 1 of 2 at 127.0.0.1 is of another build, " + long_one.substr(1) + "w; rank 0 is " + long_one);
  CHECK(differ[1] == differ[0]);
}

TEST_CASE("meeting: a rank that takes nothing is told, as one that sends nothing is") {
  const Quiet quiet;
  const int port = free_port();
  std::string end;
  std::promise<void> told;
  const auto ends = ends_of(2, [&](int rank) {
    if (rank == 0) {
      const std::shared_ptr<void> lets_go(nullptr, [&](void*) { told.set_value(); });
      Meeting meeting(place_of(0, 2, port), "this build", patience);
      meeting.wait_at_most(std::chrono::duration<double>(0.2));
      std::vector<std::byte> bytes(std::size_t{64} << 20);  // more than sockets hold
      const auto count = std::ssize(bytes);
      end = message_of<Error>([&] { meeting.gather_on_host(bytes, std::vector<Index>{0, count, count}); });
    } else {
      const std::string nothing(16, '\0');  // its part of the gather, behind how long it is
      (void)answer_to(port, hello(1, 2, "this build") + nothing, false, [&] { told.get_future().wait(); });
    }
  });
  for (const std::string& one : ends) CHECK(one == "");
  CHECK(end == "rank 1 took nothing for 0.2 s: it has ended, hangs, or is at other work than this one");
}

TEST_CASE("meeting: an address that others can't reach is told, unless it is plainly one") {
  const auto said = [](const std::string& address, const std::string& expected) {
    const Quiet quiet;
    MeetingPlace place = place_of(0, 2, free_port());
    place.address = address;
    CHECK(message_of<Error>([&] { const Meeting meeting(place, "", std::chrono::duration<double>(0.02)); }) ==
          concat("ranks 1 of 2 did not come to ", address, ":", place.port, " within 0.02 s"));
    CHECK(quiet.text == concat(expected, "waiting for 1 other rank at ", address, ":", place.port, "\n"));
  };
  said("127.0.0.1", "");
  said("127.0.0.9", "");
  said(
      "2130706433",  // 127.0.0.1 as one number
      "MASTER_ADDR 2130706433 is an address here that other hosts can't reach, one of 127.0.0.0/8; give its address in "
      "numbers\n");
}

TEST_CASE("meeting: between hosts nothing is exchanged, and one that is alone waits for nobody") {
  const Quiet quiet;
  Meeting meeting(place_of(0, 1, free_port()), "this build", patience);
  CHECK_FALSE(meeting.exchanges());
  CHECK(message_of<Error>([&] { meeting.exchange_on_host({}, {}, {}, {}); }) ==
        "[comm] ranks that are connected with the first alone exchange nothing between hosts");
}

TEST_CASE("meeting: strangers are refused and told, and keep nobody waiting") {
  const Quiet quiet;
  const int port = free_port();
  std::string web;
  std::promise<void> answered;
  const auto ends = ends_of(5, [&](int rank) {
    if (rank == 2) {
      web = answer_to(port, "GET / HTTP/1.1\r\n\r\n");
      answered.set_value();
    } else if (rank == 3) {
      (void)answer_to(port, "", true);
    } else if (rank == 4) {
      (void)answer_to(port, hello(1, 2, "this build").substr(0, 50), true);  // and goes
    } else {
      if (rank == 1) CHECK(answered.get_future().wait_for(std::chrono::seconds(8)) == std::future_status::ready);
      Meeting meeting(place_of(rank, 2, port), "this build", patience);
      CHECK(meeting.agree(0) == 0);
    }
  });
  for (const std::string& end : ends) CHECK(end == "");
  CHECK(web == "");
  CHECK(quiet.said("somebody at 127.0.0.1 has connected to 127.0.0.1:" + std::to_string(port) +
                   " and is no rank of this run: refused"));
  CHECK(quiet.said("waiting for 1 other rank at 127.0.0.1:" + std::to_string(port)));
}

TEST_CASE("meeting: a rank of another byte order ends the run at once, and is told why in its own order") {
  const Quiet quiet;
  const int port = free_port();
  std::string answer;
  const auto ends = ends_of(3, [&](int rank) {
    if (rank == 1)
      answer = answer_to(port, reversed_hello(1, 3, "this build"));
    else
      const Meeting meeting(place_of(rank, 3, port), "this build", patience);
  });
  const std::string reason =
      "rank 1 of 3 at 127.0.0.1 has another byte order than rank 0; expected processors that all have the same";
  CHECK(ends[0] == reason);
  std::uint64_t header[2] = {};
  REQUIRE(answer.size() == sizeof header + reason.size());
  std::memcpy(header, answer.data(), sizeof header);
  CHECK(__builtin_bswap64(header[0]) == reason.size());
  CHECK(__builtin_bswap64(header[1]) == 1);
  CHECK(answer.substr(sizeof header) == reason);
}

TEST_CASE("meeting: ranks that don't belong together are told so, all of them") {
  const Quiet quiet;
  struct Case {
    std::string words, reason;
  };
  for (const Case& one : {Case{hello(1, 3, "another build"),
                               "rank 1 of 3 at 127.0.0.1 is of another build, another build; rank 0 is this build"},
                          {hello(1, 4, "this build"),
                           "rank 1 of 4 at 127.0.0.1 is none of the 3 ranks; RANK or WORLD_SIZE is wrong there"},
                          {hello(3, 3, "this build"),
                           "rank 3 of 3 at 127.0.0.1 is none of the 3 ranks; RANK or WORLD_SIZE is wrong there"},
                          {hello(0, 3, "this build"),
                           "rank 0 of 3 at 127.0.0.1 is none of the 3 ranks; RANK or WORLD_SIZE is wrong there"},
                          {hello(2, 3, "this build"),
                           "rank 2 of 3 at 127.0.0.1 comes a second time; RANK must be another for each process"}}) {
    const std::string reason = one.reason;
    CAPTURE(reason);
    const int port = free_port();
    std::string answer;
    const auto ends = ends_of(3, [&](int rank) {
      if (rank == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(150));  // rank 2 is there by then, most often
        answer = answer_to(port, one.words);
      } else {
        const Meeting meeting(place_of(rank, 3, port), "this build", patience);
      }
    });
    CHECK(ends[0] == reason);
    CHECK(ends[2] == reason);
    CHECK(holds(answer, reason));
  }
}

TEST_CASE("meeting: a rank of another run ends the wait of all, and the first fact in which it differs is named") {
  const Quiet quiet;
  using Facts = std::vector<comm::Fact>;
  const Facts facts{{"the setting seed", "42"}, {"the setting stages", std::string(201, 's')}, {"the data", "a\nb"}};
  const auto ends_with = [&](const Facts& others) {
    const int port = free_port();
    std::vector<int> kinds(3);  // of the error: 1, or 2 for a setting
    auto ends = ends_of(3, [&](int rank) {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));  // rank 2 waits by then, most often
      try {
        Meeting meeting(place_of(rank, 3, port), "this build", patience, {}, rank == 1 ? others : facts);
        CHECK(meeting.agree(1) == 1);
      } catch (const std::exception& error) {
        kinds[static_cast<std::size_t>(rank)] = dynamic_cast<const ConfigError*>(&error) != nullptr ? 2 : 1;
        throw;
      }
    });
    if (!ends[0].empty()) CHECK(kinds == std::vector<int>(3, 2));
    CHECK(ends[1] == ends[0]);
    CHECK(ends[2] == ends[0]);
    return ends[0];
  };
  const auto with = [&](std::size_t at, const std::string& value) {
    Facts others = facts;
    others[at].value = value;
    return ends_with(others);
  };
  const std::string who = "rank 1 of 3 at 127.0.0.1 is of another run";
  CHECK(ends_with(facts) == "");
  CHECK(with(0, "5\x1b") == who + ": ranks differ in the setting seed: rank 0 has 42, it has 5\\x1B");
  CHECK(with(0, "") == who + ": ranks differ in the setting seed: rank 0 has 42, it has ");
  CHECK(with(1, std::string(200, 's')) == who + ": ranks differ in the setting stages: rank 0 has checksum " +
                                              checksum_text(checksum(facts[1].value)) + ", it has " +
                                              std::string(200, 's'));
  CHECK(holds(with(1, std::string(200, 's') + "t"), ": ranks differ in the setting stages: rank 0 has checksum "));
  CHECK(holds(with(2, "a\nc"), ": ranks differ in the data: rank 0 has checksum "));
  const std::string other_facts = who + ", of which it tells other facts than rank 0 does of its own";
  CHECK(ends_with({facts[0], facts[1]}) == other_facts);
  CHECK(ends_with({facts[0], facts[1], facts[2], {"the model", "1"}}) == other_facts);
  CHECK(ends_with({{"the setting lr", "42"}, facts[1], facts[2]}) == other_facts);
  CHECK(ends_with({}) == other_facts);
  // More than is sent is compared as a whole.
  const auto many = [](const char* last) {
    Facts result(1000, {"a fact", std::string(100, 'x')});
    result.push_back({"a fact", last});
    return result;
  };
  const int port = free_port();
  const auto ends = ends_of(2, [&](int rank) {
    const Meeting meeting(place_of(rank, 2, port), "this build", patience, {}, many(rank == 0 ? "one" : "other"));
  });
  for (const std::string& end : ends)
    CHECK(end.starts_with("rank 1 of 2 at 127.0.0.1 is of another run: ranks differ in facts: rank 0 has checksum "));
}

TEST_CASE("meeting: ranks that are not known yet are told why the run ends, strangers are not") {
  const Quiet quiet;
  const int port = free_port();
  const std::string whole = hello(2, 4, "this build", "a\t1\n");
  std::string early, late, silent;
  std::promise<void> ended;
  const auto has_ended = ended.get_future().share();
  const auto ends = ends_of(5, [&](int rank) {
    if (rank == 0) {
      try {
        const Meeting meeting(place_of(0, 4, port), "this build", patience, {}, {{"a", "1"}});
      } catch (const Error&) {
        ended.set_value();
        throw;
      }
    } else if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others are there by then, most often
      const Meeting meeting(place_of(1, 4, port), "this build", patience, {}, {{"a", "2"}});
    } else if (rank == 2) {
      early = answer_to(port, whole.substr(0, 50));  // with more to come
    } else if (rank == 3) {
      late = answer_to(port, whole.substr(0, 3), false, [&] { has_ended.wait(); });
    } else {
      silent = answer_to(port, "");
    }
  });
  const std::string reason = "rank 1 of 4 at 127.0.0.1 is of another run: ranks differ in a: rank 0 has 1, it has 2";
  CHECK(ends[0] == reason);
  CHECK(ends[1] == reason);
  CHECK(holds(early, reason));
  CHECK(late == "");
  CHECK(silent == "");
}

TEST_CASE("meeting: who says that more follows than any run has is a stranger, and so is who does not say it all") {
  const Quiet quiet;
  const int port = free_port();
  std::string answer;
  const auto ends = ends_of(4, [&](int rank) {
    if (rank == 2) {
      answer = answer_to(port, hello(1, 2, "this build", "facts", (1u << 16) + 1));
    } else if (rank == 3) {
      (void)answer_to(port, hello(1, 2, "this build", "a\t", 1u << 16), true);  // and goes
    } else {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      Meeting meeting(place_of(rank, 2, port), "this build", patience, {}, {{"a", "1"}});
      CHECK(meeting.agree(0) == 0);
    }
  });
  for (const std::string& end : ends) CHECK(end == "");
  CHECK(answer == "");
  std::size_t refused = 0;
  for (std::size_t at = 0; (at = quiet.text.find("is no rank of this run: refused", at)) != std::string::npos; ++at)
    ++refused;
  CHECK(refused == 2);
}

TEST_CASE("meeting: a rank that ends before all are there ends the wait of the others") {
  const Quiet quiet;
  const int port = free_port();
  const auto ends = ends_of(2, [&](int rank) {
    if (rank == 0) {
      const Meeting meeting(place_of(0, 3, port), "this build", patience);
    } else {
      (void)answer_to(port, hello(1, 3, "this build"), true);
    }
  });
  CHECK(ends[0] == "rank 1 has ended before all were there");
}

TEST_CASE("meeting: an address that is no host's, another host's, a port that is taken, and nobody there") {
  const Quiet quiet;
  MeetingPlace place = place_of(0, 2, 29500);
  place.address = "no.such.host.invalid";
  CHECK(holds(message_of<ConfigError>([&] { const Meeting meeting(place, "", patience); }),
              "the environment's MASTER_ADDR is 'no.such.host.invalid', which stands for no address: "));
  place.rank = 1;  // which waits for a name that comes
  CHECK(holds(message_of<ConfigError>([&] { const Meeting meeting(place, "", std::chrono::duration<double>(0.2)); }),
              "stands for no address: "));
  place.rank = 0;
  place.address = "203.0.113.7";  // of no host
  CHECK(holds(message_of<Error>([&] { const Meeting meeting(place, "", patience); }),
              "MASTER_ADDR 203.0.113.7 is no address of "));
  const int port = free_port();
  const int taken = listening_on(port);
  REQUIRE(::listen(taken, 1) == 0);
  place = place_of(0, 2, port);
  CHECK(holds(message_of<Error>([&] { const Meeting meeting(place, "", patience); }),
              concat("rank 0 can't wait for the others at 127.0.0.1:", port, ": Address already in use; MASTER_PORT")));
  ::close(taken);
  place.rank = 1;
  CHECK(holds(message_of<Error>([&] { const Meeting meeting(place, "", std::chrono::duration<double>(0.3)); }),
              concat("rank 1 found nobody at 127.0.0.1:", port,
                     " for 0.3 s: Connection refused; expected rank 0 there, as MASTER_ADDR and "
                     "MASTER_PORT say")));
  place = place_of(0, 3, free_port());
  CHECK(holds(message_of<Error>([&] { const Meeting meeting(place, "", std::chrono::duration<double>(0.3)); }),
              concat("ranks 1, 2 of 3 did not come to 127.0.0.1:", place.port, " within 0.3 s")));
}

TEST_CASE("meeting: the longest wait that ddp_timeout may be has an end that a clock can tell") {
  const Quiet quiet;
  const int port = free_port();
  const auto told = ends_of(2, [&](int rank) {
    Meeting meeting(place_of(rank, 2, port), "this build", std::chrono::duration<double>(1e9));
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));  // for which the other waits
    (void)meeting.agree(0);
  });
  for (const std::string& end : told) CHECK(end.empty());
}

TEST_CASE("meeting: where a rank ends, hangs or is at other work, all are told which") {
  const Quiet quiet;
  const auto ends = [&](const std::function<void(Meeting&, int)>& f, double seconds = 60) {
    const int port = free_port();
    return ends_of(3, [&](int rank) {
      Meeting meeting(place_of(rank, 3, port), "this build", patience);
      meeting.wait_at_most(std::chrono::duration<double>(seconds));
      f(meeting, rank);
    });
  };
  auto told = ends([](Meeting& meeting, int rank) {
    if (rank == 2) fail<Error>("its disk is full");
    (void)meeting.agree(0);
  });
  CHECK(told[2] == "its disk is full");
  for (const std::size_t other : {0u, 1u}) CHECK(holds(told[other], "rank 2 has ended"));
  told = ends([](Meeting& meeting, int rank) {
    if (rank == 0) fail<Error>("its disk is full");
    (void)meeting.agree(0);
  });
  for (const std::size_t other : {1u, 2u}) CHECK(holds(told[other], "rank 0 has ended"));
  for (const bool more : {true, false}) {
    CAPTURE(more);
    told = ends([&](Meeting& meeting, int rank) {
      if ((rank == 1) == more) {
        (void)meeting.all_gather(std::span<const double>(std::vector<double>(3)));
      } else {
        (void)meeting.agree(0);
      }
    });
    for (const std::string& end : told)
      CHECK(holds(end, concat("rank 1 sends ", more ? "24 bytes, where 8" : "8 bytes, where 24",
                              " are expected: it is at other work than this one")));
  }
  told = ends(
      [](Meeting& meeting, int rank) {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        (void)meeting.agree(0);
      },
      0.3);
  CHECK(holds(told[0], "rank 1 sent nothing for 0.3 s: it has ended, hangs, or is at other work than this one"));
  // After a failure nothing goes on.
  told = ends([](Meeting& meeting, int rank) {
    if (rank == 2) fail<Error>("first");
    (void)message_of<Error>([&] { (void)meeting.agree(0); });
    (void)meeting.agree(0);
  });
  for (const std::size_t other : {0u, 1u})
    CHECK(told[other] == "the ranks are no longer connected: another call has failed");
}

TEST_CASE("meeting: a connection sends at once what is said, notices a host that is gone, and blocks no wait") {
  const int port = free_port(), door = listening_on(port), own = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(::listen(door, 1) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  REQUIRE(::connect(own, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const comm::Socket first(::accept(door, nullptr, nullptr));
  ::close(door);
  const std::uint64_t all_are_here[2] = {};
  REQUIRE(::send(first.handle(), all_are_here, sizeof all_are_here, 0) == sizeof all_are_here);
  const Meeting meeting(place_of(1, 2, port), "this build", patience, comm::Socket(own));
  const auto option = [&](int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    REQUIRE(::getsockopt(own, level, name, &value, &size) == 0);
    return value;
  };
  CHECK(option(IPPROTO_TCP, TCP_NODELAY) != 0);  // or small messages wait for the answers to those before them
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) != 0);
  CHECK((::fcntl(own, F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE("meeting: the environment says where, whole or not at all") {
  const auto place_with = [](const std::vector<std::pair<const char*, const char*>>& values) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"})
      ::unsetenv(name);
    for (const auto& value : values) ::setenv(value.first, value.second, 1);
    return comm::meeting_place();
  };
  const auto refusal = [&](const std::vector<std::pair<const char*, const char*>>& values) {
    return message_of<ConfigError>([&] { (void)place_with(values); });
  };
  CHECK_FALSE(place_with({}));
  CHECK_FALSE(place_with({{"WORLD_SIZE", "1"}, {"RANK", "0"}}));
  const auto place = place_with({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "one"}, {"MASTER_PORT", "1234"}});
  REQUIRE(place);
  CHECK(place->rank == 3);
  CHECK(place->size == 4);
  CHECK(place->address == "one");
  CHECK(place->port == 1234);
  CHECK(place_with({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "one"}})->port == 29500);
  const auto port_with = [&](const char* port, const char* store) {
    return place_with({{"RANK", "1"},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "one"},
                       {"MASTER_PORT", port},
                       {"TORCHELASTIC_USE_AGENT_STORE", store}})
        ->port;
  };
  CHECK(port_with("29500", "True") == 29501);  // as torchrun says that its own store listens at the other
  CHECK(port_with("65535", "True") == 65534);
  CHECK(port_with("29500", "False") == 29500);
  CHECK(holds(refusal({{"WORLD_SIZE", "2"}}), "the environment's WORLD_SIZE is 2, but no RANK is set"));
  CHECK(holds(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "one"}}),
              "the environment's RANK is 2 and its WORLD_SIZE 2; expected a RANK below it"));
  CHECK(holds(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "but no MASTER_ADDR is set"));
  for (const char* port : {"0", "65536"})
    CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "one"}, {"MASTER_PORT", port}}) ==
          concat("the environment's MASTER_PORT is '", port, "'; expected a port from 1 to 65535"));
  for (const char* port : {"1", "65535"})
    CHECK(place_with({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "one"}, {"MASTER_PORT", port}})->port ==
          std::stoi(port));
  CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", ""}}) ==
        "the environment's WORLD_SIZE is 2, but no MASTER_ADDR is set; expected the address of rank 0's host");
  for (const char* rank : {"0", "1"})
    CHECK(refusal({{"RANK", rank}}) == concat("the environment's RANK is ", rank,
                                              ", but no WORLD_SIZE is set; expected both, as launchers set them"));
  CHECK(refusal({{"RANK", "3"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "one"}}) ==
        "the environment's RANK is 3 and its WORLD_SIZE 2; expected a RANK below it");
  CHECK(MeetingPlace().port == 29500);
  CHECK(MeetingPlace().rank == 0);
  CHECK(MeetingPlace().size == 1);
  (void)place_with({});
}

}  // namespace meeting_test
