#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "lora/comm/meeting.hpp"
#include "lora/core/config.hpp"
#include "lora/core/environment.hpp"
#include "lora/core/error.hpp"
#include "lora/core/hash.hpp"
#include "lora/core/log.hpp"
#include "lora/core/printable.hpp"

namespace lora::comm {

LORA_INLINE std::optional<MeetingPlace> meeting_place() {
  const auto size = launcher_number("WORLD_SIZE");
  const auto rank = launcher_number("RANK");
  if (!size) {
    if (rank)
      fail<ConfigError>("the environment's RANK is ", *rank, ", but no WORLD_SIZE is set; expected both, as launchers ",
                        "set them");
    return std::nullopt;
  }
  if (*size <= 1) return std::nullopt;
  if (!rank) fail<ConfigError>("the environment's WORLD_SIZE is ", *size, ", but no RANK is set; expected both");
  if (*rank >= *size)
    fail<ConfigError>("the environment's RANK is ", *rank, " and its WORLD_SIZE ", *size, "; expected a RANK below it");
  MeetingPlace place{.rank = *rank, .size = *size};
  const char* const address = std::getenv("MASTER_ADDR");
  if (address == nullptr || *address == '\0')
    fail<ConfigError>("the environment's WORLD_SIZE is ", *size,
                      ", but no MASTER_ADDR is set; expected the address of ", "rank 0's host");
  place.address = address;
  place.port = environment_number("MASTER_PORT", 1, 65535, "a port from 1 to 65535").value_or(place.port);
  // torchrun's own store listens at MASTER_PORT, and nothing here uses it.
  const char* const store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (store != nullptr && std::string_view(store) == "True") place.port += place.port < 65535 ? 1 : -1;
  return place;
}

LORA_INLINE Socket::~Socket() {
  if (handle_ >= 0) ::close(handle_);
}

/// What a rank says first, before the facts of its run. Numbers are this host's: of another order of bytes the first of
/// them is reversed.
struct Meeting::Hello {
  static constexpr std::uint32_t own = 0x4C6F5261, reversed = __builtin_bswap32(own);

  std::uint32_t magic = own;
  std::uint32_t rank = 0, size = 0;
  char version[120] = "";
  std::uint32_t facts = 0;  // bytes that follow
};

struct Meeting::Guest {
  Socket socket;
  std::string address{};
  Clock::time_point until{};
  std::string words{};  // that it has said
  bool told = false;    // why the run ends

  /// Takes what it says, of which `most` bytes are kept. False once it has gone.
  bool listen(std::size_t most) {
    char text[4096];
    const ssize_t got = ::recv(socket.handle(), text, std::min(sizeof text, most - words.size()), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    words.append(text, static_cast<std::size_t>(got));
    return true;
  }
  /// Whether it begins as a rank does, once as much is there.
  bool is_rank() const { return begins_with(Hello::own) || is_reversed(); }
  bool is_reversed() const { return begins_with(Hello::reversed); }
  bool is_stranger() const { return words.size() >= sizeof Hello::magic && !is_rank(); }

 private:
  bool begins_with(std::uint32_t magic) const {
    return words.size() >= sizeof magic && std::memcmp(words.data(), &magic, sizeof magic) == 0;
  }
};

namespace detail {

inline constexpr std::chrono::seconds guest_patience{10};
inline constexpr std::chrono::seconds farewell{1};  // in which whoever connects is told why the run ends
inline constexpr std::size_t most_guests = 256;
inline constexpr std::size_t most_facts = std::size_t{1} << 16;  // bytes of a run's, which any guest may have kept here

/// A line for each, of which the first to differ can be named. Long values are compared by their checksums.
inline std::string lines_of(const std::vector<Fact>& facts) {
  std::string lines;
  for (const Fact& fact : facts) {
    const bool fits = fact.value.size() <= 200 && fact.value.find('\n') == std::string::npos;
    lines += concat(fact.name, "\t", fits ? fact.value : "checksum " + checksum_text(checksum(fact.value)), "\n");
  }
  if (lines.size() > most_facts) lines = concat("facts\tchecksum ", checksum_text(checksum(lines)), "\n");
  return lines;
}

/// Takes the first line of a text, without its end.
inline std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

/// Before each gather's bytes, from rank 0: how many follow, and whether they are the reason why the run ends.
struct Header {
  std::uint64_t bytes = 0;
  std::uint64_t ends = 0;
};

inline std::string system_error(int error) { return std::generic_category().message(error); }

/// The addresses that a name stands for, at a port.
struct Addresses {
  explicit Addresses(const MeetingPlace& place, bool listens) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = listens ? AI_PASSIVE : 0;
    error = ::getaddrinfo(place.address.c_str(), std::to_string(place.port).c_str(), &hints, &first);
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses() {
    if (first != nullptr) ::freeaddrinfo(first);
  }

  /// Whether the name may stand for one later, as one of a host that begins does.
  bool may_come() const { return error == EAI_AGAIN || error == EAI_NONAME; }
  [[noreturn]] void refuse(const MeetingPlace& place) const {
    fail<ConfigError>("the environment's MASTER_ADDR is '", std::string_view(printable(place.address)),
                      "', which stands for no address: ", std::string_view(::gai_strerror(error)));
  }

  addrinfo* first = nullptr;
  int error = 0;
};

inline std::string name_of(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = "";
  const int error =
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host : "an unknown address";
}

inline bool is_loopback(const sockaddr& address) {
  return address.sa_family == AF_INET &&
         ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
}

/// A socket that looks for a free port of its own may find that which it connects to, and be its own other side.
inline bool is_its_own(int socket) {
  sockaddr_storage own{}, other{};
  socklen_t own_size = sizeof own, other_size = sizeof other;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &other_size) == 0 && own_size == other_size &&
         std::memcmp(&own, &other, own_size) == 0;
}

inline void prepare(int socket) {
  const int on = 1;
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

inline int milliseconds_until(std::chrono::steady_clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000000));
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace detail

LORA_INLINE Meeting::Meeting(MeetingPlace place, std::string_view version, std::chrono::duration<double> timeout,
                             Socket socket, const std::vector<Fact>& run)
    : place_(std::move(place)),
      version_(version.substr(0, sizeof Hello{}.version - 1)),
      run_(detail::lines_of(run)),
      timeout_(timeout) {
  sockets_.resize(static_cast<std::size_t>(place_.rank == 0 ? place_.size : 1));
  if (place_.rank == 0)
    receive_all(socket.open() ? std::move(socket) : open_door());
  else
    join(socket.open() ? std::move(socket) : connected());
}

LORA_INLINE std::string Meeting::missing() const {
  std::string ranks;
  for (int r = 1; r < place_.size; ++r)
    if (!sockets_[static_cast<std::size_t>(r)].open()) ranks += concat(ranks.empty() ? "" : ", ", r);
  return ranks;
}

LORA_INLINE Socket Meeting::open_door() const {
  const detail::Addresses addresses(place_, true);
  if (addresses.error != 0) addresses.refuse(place_);
  Socket door;
  int error = 0;
  // Where one of several addresses is taken, others would come to whoever has it.
  for (const addrinfo* at = addresses.first; at != nullptr && !door.open() && error != EADDRINUSE; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    const int on = 1;
    if (socket.open()) (void)::setsockopt(socket.handle(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket.open() && ::bind(socket.handle(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(socket.handle(), SOMAXCONN) == 0)
      door = std::move(socket);
    else
      error = errno;
    if (door.open() && detail::is_loopback(*at->ai_addr) && !place_.address.starts_with("127.") &&
        place_.address != "localhost" && place_.address != "::1")
      log::warn("MASTER_ADDR ", std::string_view(place_.address), " is an address here that other hosts can't reach, ",
                "one of 127.0.0.0/8; give its address in numbers");
  }
  const std::string where = concat(std::string_view(place_.address), ":", place_.port);
  if (!door.open() && error == EADDRNOTAVAIL)
    fail<Error>("MASTER_ADDR ", std::string_view(place_.address), " is no address of ", std::string_view(host()),
                ", where rank 0 is; expected that of rank 0's host");
  if (!door.open())
    fail<Error>("rank 0 can't wait for the others at ", std::string_view(where), ": ",
                std::string_view(detail::system_error(error)), "; MASTER_PORT chooses another port");
  return door;
}

LORA_INLINE void Meeting::receive_all(const Socket& door) {
  std::vector<Guest> guests;
  try {
    take_in(door, guests);
  } catch (const ConfigError& error) {
    dismiss(door, guests, error.what(), Refusal::settings);
    throw;
  } catch (const Error& error) {
    dismiss(door, guests, error.what(), Refusal::error);
    throw;
  }
  const detail::Header all_are_here{};
  for (int r = 1; r < place_.size; ++r) send(r, detail::bytes_of(all_are_here));
}

/// Returns once each rank has its socket.
LORA_INLINE void Meeting::take_in(const Socket& door, std::vector<Guest>& guests) {
  const std::string where = concat(std::string_view(place_.address), ":", place_.port);
  detail::prepare(door.handle());
  log::info("waiting for ", place_.size - 1, place_.size == 2 ? " other rank at " : " other ranks at ",
            std::string_view(where));
  const auto begin = Clock::now();
  const auto until = begin + std::chrono::duration_cast<Clock::duration>(timeout_);
  auto told = begin + std::chrono::seconds(30);
  while (!missing().empty()) {
    const auto now = Clock::now();
    if (now >= until)
      end(concat("ranks ", std::string_view(missing()), " of ", place_.size, " did not come to ",
                 std::string_view(where), " within ", timeout_.count(), " s"));
    if (now >= told) {
      log::info("still waiting for ranks ", std::string_view(missing()), " at ", std::string_view(where));
      told = now + std::chrono::seconds(30);
    }
    std::vector<pollfd> waiting{{door.handle(), POLLIN, 0}};
    auto next = std::min(until, told);
    for (const Guest& guest : guests) {
      waiting.push_back({guest.socket.handle(), POLLIN, 0});
      next = std::min(next, guest.until);
    }
    // Those that are here say nothing until all are.
    const std::size_t first = waiting.size();
    for (const Socket& socket : sockets_) waiting.push_back({socket.handle(), POLLIN, 0});  // none: passed over
    (void)::poll(waiting.data(), waiting.size(), detail::milliseconds_until(next));
    for (std::size_t r = 1; r < sockets_.size(); ++r)
      if (waiting[first + r].revents != 0) end(concat("rank ", r, " has ended before all were there"));
    for (std::size_t i = guests.size(); i-- > 0;) {
      const bool speaks = waiting[i + 1].revents != 0;
      if ((speaks && welcome(guests[i])) || Clock::now() >= guests[i].until) {
        if (guests[i].socket.open())
          log::warn("somebody at ", std::string_view(guests[i].address), " has connected to ", std::string_view(where),
                    " and is no rank of this run: refused");
        guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if ((waiting[0].revents & POLLIN) == 0) continue;
    if (!let_in(door, guests))
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // no file can be opened now, say
  }
}

/// False where nobody waits at the door, or nobody can be let in now.
LORA_INLINE bool Meeting::let_in(const Socket& door, std::vector<Guest>& guests) const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  Socket socket(::accept4(door.handle(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC));
  if (!socket.open()) return false;
  detail::prepare(socket.handle());
  if (guests.size() >= detail::most_guests) guests.erase(guests.begin());  // which has said nothing for longest
  guests.push_back({std::move(socket), detail::name_of(address, size), Clock::now() + detail::guest_patience});
  return true;
}

/// Tells ranks that were not taken in why the run ends, and those that come within a second: they would look for rank 0
/// until their own time is over. What they send is read until they go: a connection that is closed before that is
/// reset, and with it may be lost what they were told.
LORA_INLINE void Meeting::dismiss(const Socket& door, std::vector<Guest>& guests, const std::string& reason,
                                  Refusal kind) const {
  const auto until = Clock::now() + detail::farewell;
  int told = 0;
  while (true) {
    for (std::size_t i = 0; i < detail::most_guests && let_in(door, guests); ++i) continue;
    for (Guest& guest : guests) {
      if (guest.told || !guest.is_rank()) continue;
      refuse(guest.socket, reason, kind, guest.is_reversed());
      (void)::shutdown(guest.socket.handle(), SHUT_WR);
      guest.told = true;
      ++told;
    }
    if ((guests.empty() && told + 1 >= place_.size) || Clock::now() >= until) return;
    std::vector<pollfd> waiting;
    for (const Guest& guest : guests) waiting.push_back({guest.socket.handle(), POLLIN, 0});
    // Not for the door, which may have somebody whom there is no file for.
    (void)::poll(waiting.data(), waiting.size(), std::min(20, detail::milliseconds_until(until)));
    for (std::size_t i = guests.size(); i-- > 0;) {
      if (waiting[i].revents == 0) continue;
      Guest& guest = guests[i];
      if (guest.told) guest.words.clear();
      if (!guest.listen(sizeof(Hello)) || (!guest.told && guest.is_stranger()))
        guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

/// Whether it is known who the guest is; its socket is then that of a rank, or still its own where it is none.
LORA_INLINE bool Meeting::welcome(Guest& guest) {
  constexpr std::size_t behind_version = offsetof(Hello, facts);
  Hello hello;
  const auto read_hello = [&] { std::memcpy(&hello, guest.words.data(), std::min(guest.words.size(), sizeof hello)); };
  read_hello();
  // No more than that: what follows belongs to the first call.
  const std::size_t size = sizeof hello + (guest.words.size() < sizeof hello ? 0 : hello.facts);
  if (!guest.listen(size) || guest.is_stranger()) return true;
  read_hello();
  const bool reversed = guest.is_reversed();
  if (guest.words.size() < behind_version) return false;
  const auto number = [&](std::uint32_t value) { return reversed ? __builtin_bswap32(value) : value; };
  const std::string version(hello.version, ::strnlen(hello.version, sizeof hello.version));
  const std::string who =
      concat("rank ", number(hello.rank), " of ", number(hello.size), " at ", std::string_view(guest.address));
  // It is of this run, or thinks so: all are told rather than that one is waited for.
  const auto end_by = [&](const std::string& reason, Refusal kind = Refusal::error) {
    end(concat(std::string_view(who), " ", std::string_view(reason)), kind);
  };
  if (reversed) end_by("has another byte order than rank 0; expected processors that all have the same");
  if (version != version_)
    end_by(concat("is of another build, ", std::string_view(printable(version)), "; rank 0 is ",
                  std::string_view(version_)));
  if (hello.size != static_cast<std::uint32_t>(place_.size) || hello.rank == 0 || hello.rank >= hello.size)
    end_by(concat("is none of the ", place_.size, " ranks; RANK or WORLD_SIZE is wrong there"));
  if (sockets_[hello.rank].open()) end_by("comes a second time; RANK must be another for each process");
  if (guest.words.size() < sizeof hello) return false;
  const std::string_view facts = std::string_view(guest.words).substr(sizeof hello);
  if (hello.facts > detail::most_facts) return true;
  if (facts.size() < hello.facts) return false;
  if (const std::string difference = difference_from(facts); !difference.empty()) end_by(difference, Refusal::settings);
  sockets_[hello.rank] = std::move(guest.socket);
  return true;
}

/// In what a rank's run differs from this one, in words that go behind its name; nothing where it doesn't.
LORA_INLINE std::string Meeting::difference_from(std::string_view theirs) const {
  if (theirs == run_) return {};
  std::string_view ours = run_;
  std::string_view own, other;
  do {
    own = detail::take_line(ours);
    other = detail::take_line(theirs);
  } while (own == other && !own.empty());
  const auto name = own.substr(0, own.find('\t'));
  if (name.empty() || name.size() == own.size() || !other.starts_with(own.substr(0, name.size() + 1)))
    return "is of another run, of which it tells other facts than rank 0 does of its own";
  const auto shown = [&](std::string_view line) { return printable(shortened(line.substr(name.size() + 1), 300)); };
  return concat("is of another run: ranks differ in ", name, ": rank 0 has ", std::string_view(shown(own)), ", it has ",
                std::string_view(shown(other)));
}

LORA_INLINE void Meeting::refuse(const Socket& socket, const std::string& reason, Refusal kind, bool reversed) const {
  detail::Header header{.bytes = reason.size(), .ends = static_cast<std::uint64_t>(kind)};
  if (reversed) header = {.bytes = __builtin_bswap64(header.bytes), .ends = __builtin_bswap64(header.ends)};
  // A few bytes, which a connection that is new takes at once.
  (void)::send(socket.handle(), &header, sizeof header, MSG_NOSIGNAL);
  (void)::send(socket.handle(), reason.data(), reason.size(), MSG_NOSIGNAL);
}

LORA_INLINE Socket Meeting::connected() const {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout_);
  const std::string where = concat(std::string_view(place_.address), ":", place_.port);
  int error = 0;
  while (true) {
    {
      const detail::Addresses addresses(place_, false);
      if (addresses.error != 0 && (!addresses.may_come() || Clock::now() >= until)) addresses.refuse(place_);
      for (const addrinfo* at = addresses.first; at != nullptr; at = at->ai_next) {
        Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
        if (!socket.open()) continue;
        if (::connect(socket.handle(), at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
          error = errno;
          continue;
        }
        pollfd waiting{socket.handle(), POLLOUT, 0};
        (void)::poll(&waiting, 1, std::min(5000, detail::milliseconds_until(until)));
        socklen_t size = sizeof error;
        error = ETIMEDOUT;
        if (waiting.revents != 0 && ::getsockopt(socket.handle(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
            error == 0) {
          if (detail::is_its_own(socket.handle()))
            error = ECONNREFUSED;
          else
            return socket;
        }
      }
    }
    if (Clock::now() >= until)
      fail<Error>("rank ", place_.rank, " found nobody at ", std::string_view(where), " for ", timeout_.count(),
                  " s: ", std::string_view(detail::system_error(error)),
                  "; expected rank 0 there, as MASTER_ADDR and MASTER_PORT say");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // rank 0 may begin later
  }
}

LORA_INLINE void Meeting::join(Socket socket) {
  sockets_[0] = std::move(socket);
  detail::prepare(sockets_[0].handle());
  Hello hello;
  hello.rank = static_cast<std::uint32_t>(place_.rank);
  hello.size = static_cast<std::uint32_t>(place_.size);
  std::memcpy(hello.version, version_.data(), version_.size());
  hello.facts = static_cast<std::uint32_t>(run_.size());
  send(0, detail::bytes_of(hello));
  send(0, std::as_bytes(std::span<const char>(run_)));
  receive(0, {});  // once all are there
}

/// Rank 0 hears of all and decides first which it was that did not come; after that the others may doubt rank 0.
LORA_INLINE Meeting::Clock::time_point Meeting::limit() const {
  const std::chrono::duration<double> more(place_.rank == 0 ? 0 : 10);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout_ + more);
}

LORA_INLINE void Meeting::wait_for(int other, short events, Clock::time_point until) {
  const std::size_t at = place_.rank == 0 ? static_cast<std::size_t>(other) : 0;
  while (true) {
    pollfd waiting{sockets_[at].handle(), events, 0};
    if (::poll(&waiting, 1, detail::milliseconds_until(until)) > 0) return;
    if (Clock::now() >= until)
      end(concat("rank ", other, (events & POLLIN) != 0 ? " sent" : " took", " nothing for ", timeout_.count(),
                 " s: it has ended, hangs, or is at other work than this one"));
  }
}

LORA_INLINE void Meeting::send(int other, std::span<const std::byte> bytes) {
  const std::size_t at = place_.rank == 0 ? static_cast<std::size_t>(other) : 0;
  traffic_.sent_bytes += static_cast<double>(bytes.size());
  const auto until = limit();
  while (!bytes.empty()) {
    const ssize_t sent = ::send(sockets_[at].handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      wait_for(other, POLLOUT, until);
    } else if (errno != EINTR) {
      const std::string error = detail::system_error(errno);
      if (place_.rank > 0) receive(0, {});  // which most often says why it takes nothing
      end(concat("rank ", other, " has ended: ", std::string_view(error)));
    }
  }
}

/// Of rank 0, a header comes first, which may say why the run ends.
LORA_INLINE void Meeting::receive(int other, std::span<std::byte> bytes) {
  const std::size_t at = place_.rank == 0 ? static_cast<std::size_t>(other) : 0;
  const auto until = limit();
  const auto take = [&](std::span<std::byte> to) {
    while (!to.empty()) {
      const ssize_t got = ::recv(sockets_[at].handle(), to.data(), to.size(), 0);
      if (got > 0) {
        to = to.subspan(static_cast<std::size_t>(got));
      } else if (got == 0) {
        end(concat("rank ", other, " has ended"));
      } else if (errno == EAGAIN) {
        wait_for(other, POLLIN, until);
      } else if (errno != EINTR) {
        end(concat("rank ", other, " has ended: ", std::string_view(detail::system_error(errno))));
      }
    }
  };
  detail::Header header;
  take(std::as_writable_bytes(std::span(&header, 1)));
  if (header.ends != 0) {
    std::string reason(static_cast<std::size_t>(std::min<std::uint64_t>(header.bytes, 4096)), '\0');
    take(std::as_writable_bytes(std::span(reason)));
    end(printable(reason), static_cast<Refusal>(header.ends));
  }
  if (header.bytes != bytes.size())
    end(concat("rank ", other, " sends ", header.bytes, " bytes, where ", bytes.size(),
               " are expected: it is at other ", "work than this one"));
  take(bytes);
  traffic_.received_bytes += static_cast<double>(bytes.size());
}

LORA_INLINE void Meeting::end(const std::string& reason, Refusal kind) {
  if (place_.rank == 0)
    for (const Socket& socket : sockets_)
      if (socket.open()) refuse(socket, reason, kind);
  sockets_ = std::vector<Socket>(sockets_.size());
  if (kind == Refusal::settings) fail<ConfigError>(std::string_view(reason));
  fail<Error>(std::string_view(reason));
}

LORA_INLINE void Meeting::gather_on_host(std::span<std::byte> bytes, std::span<const Index> begins) {
  const auto begin = Clock::now();
  const auto part_of = [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    return bytes.subspan(static_cast<std::size_t>(begins[at]), static_cast<std::size_t>(begins[at + 1] - begins[at]));
  };
  if (!sockets_[place_.rank == 0 && place_.size > 1 ? 1 : 0].open())
    fail<Error>("the ranks are no longer connected: another call has failed");
  const auto give = [&](int other, std::span<const std::byte> given) {
    send(other, detail::bytes_of(detail::Header{.bytes = given.size()}));
    send(other, given);
  };
  if (place_.rank == 0) {
    for (int r = 1; r < place_.size; ++r) receive(r, part_of(r));
    for (int r = 1; r < place_.size; ++r) give(r, bytes);
  } else {
    give(0, part_of(place_.rank));
    receive(0, bytes);
  }
  traffic_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
}

LORA_INLINE void Meeting::exchange_on_host(std::span<const std::span<std::byte>>, std::span<const int>,
                                           std::span<const Index>, std::span<const std::span<std::byte>>) {
  fail<Error>("[comm] ranks that are connected with the first alone exchange nothing between hosts");
}

}  // namespace lora::comm
