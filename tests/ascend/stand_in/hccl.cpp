/// libhccl.so: collectives among the threads and processes of one host. Who made the root information has a hub: a
/// thread that takes each rank's part over a socket, checks that all ask for the same, and sends the results back.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine.hpp"
#include "numbers.hpp"

using namespace stand_in;

namespace {

enum class Call : std::uint32_t {
  all_reduce,
  broadcast,
  reduce_scatter,
  all_gather,
  reduce,
  scatter,
  all_to_all,
  send,
  receive,
  batch,
  barrier
};

const char* name_of(Call call) {
  static const char* const names[] = {"HcclAllReduce", "HcclBroadcast",     "HcclReduceScatter", "HcclAllGather",
                                      "HcclReduce",    "HcclScatter",       "HcclAlltoAll",      "HcclSend",
                                      "HcclRecv",      "HcclBatchSendRecv", "HcclBarrier"};
  return names[static_cast<std::size_t>(call)];
}

/// What a rank sends before its data.
struct Header {
  Call call = Call::barrier;
  std::int32_t type = 0;
  std::int32_t operation = 0;
  std::uint32_t peer = 0;  // or root
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

/// One of the sends and receives of a batch. They come before the data of the sends.
struct Item {
  std::uint32_t receives = 0;
  std::uint32_t peer = 0;
  std::int32_t type = 0;
  std::uint32_t unused = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

struct Hello {
  std::uint32_t ranks = 0;
  std::uint32_t rank = 0;
};

struct Answer {
  std::int32_t result = HCCL_SUCCESS;
  std::uint32_t unused = 0;
  std::uint64_t bytes = 0;
};

using Bytes = std::vector<unsigned char>;

bool send_all(int socket, const void* data, std::size_t size) {
  const auto* from = static_cast<const unsigned char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(socket, from, size, MSG_NOSIGNAL);
    if (sent <= 0) {
      if (sent < 0 && errno == EINTR) continue;
      return false;
    }
    from += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* data, std::size_t size) {
  auto* to = static_cast<unsigned char*>(data);
  while (size > 0) {
    const ssize_t got = ::recv(socket, to, size, 0);
    if (got <= 0) {
      if (got < 0 && errno == EINTR) continue;
      return false;
    }
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

std::int64_t seconds(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? std::strtoll(text, nullptr, 10) : otherwise;
}

void set_patience(int socket, std::int64_t limit) {
  timeval time{};
  time.tv_sec = limit;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

// Types

std::size_t bytes_of(HcclDataType type) {
  switch (type) {
    case HCCL_DATA_TYPE_INT8:
    case HCCL_DATA_TYPE_UINT8:
      return 1;
    case HCCL_DATA_TYPE_INT16:
    case HCCL_DATA_TYPE_UINT16:
    case HCCL_DATA_TYPE_FP16:
    case HCCL_DATA_TYPE_BFP16:
      return 2;
    case HCCL_DATA_TYPE_INT32:
    case HCCL_DATA_TYPE_UINT32:
    case HCCL_DATA_TYPE_FP32:
      return 4;
    case HCCL_DATA_TYPE_INT64:
    case HCCL_DATA_TYPE_UINT64:
    case HCCL_DATA_TYPE_FP64:
      return 8;
    default:
      return 0;
  }
}

bool reducible(HcclDataType type, HcclReduceOp operation) {
  if (operation < HCCL_REDUCE_SUM || operation > HCCL_REDUCE_MIN) return false;
  switch (type) {
    case HCCL_DATA_TYPE_INT8:
    case HCCL_DATA_TYPE_INT32:
    case HCCL_DATA_TYPE_INT64:
    case HCCL_DATA_TYPE_FP16:
    case HCCL_DATA_TYPE_FP32:
      return true;
    case HCCL_DATA_TYPE_INT16:
    case HCCL_DATA_TYPE_BFP16:
      return operation != HCCL_REDUCE_PROD;
    default:
      return false;
  }
}

template <class T>
T combine(T a, T b, int operation) {
  switch (operation) {
    case HCCL_REDUCE_SUM:
      return static_cast<T>(a + b);
    case HCCL_REDUCE_PROD:
      return static_cast<T>(a * b);
    case HCCL_REDUCE_MAX:
      return std::max(a, b);
    default:
      return std::min(a, b);
  }
}

/// Element by element over the ranks in their order: FP16 and BF16 in FP32, and rounded once.
Bytes reduced(const std::vector<const Bytes*>& parts, const Header& header) {
  Bytes result = *parts[0];
  const std::size_t size = bytes_of(static_cast<HcclDataType>(header.type));
  const auto over = [&](auto narrow, auto widen, auto shrink) {
    for (std::size_t at = 0; at + size <= result.size(); at += size) {
      std::memcpy(&narrow, parts[0]->data() + at, sizeof narrow);
      auto sum = widen(narrow);
      for (std::size_t rank = 1; rank < parts.size(); ++rank) {
        std::memcpy(&narrow, parts[rank]->data() + at, sizeof narrow);
        sum = combine(sum, widen(narrow), header.operation);
      }
      narrow = shrink(sum);
      std::memcpy(result.data() + at, &narrow, sizeof narrow);
    }
  };
  const auto whole = [&](auto zero) {
    // Sums wrap around as the hardware's do.
    using T = decltype(zero);
    if (header.operation == HCCL_REDUCE_SUM || header.operation == HCCL_REDUCE_PROD) {
      over(
          zero, [](T value) { return static_cast<std::uint64_t>(value); },
          [](std::uint64_t value) { return static_cast<T>(value); });
    } else {
      over(
          zero, [](T value) { return value; }, [](T value) { return value; });
    }
  };
  switch (header.type) {
    case HCCL_DATA_TYPE_INT8:
      whole(std::int8_t{});
      break;
    case HCCL_DATA_TYPE_INT16:
      whole(std::int16_t{});
      break;
    case HCCL_DATA_TYPE_INT32:
      whole(std::int32_t{});
      break;
    case HCCL_DATA_TYPE_INT64:
      whole(std::int64_t{});
      break;
    case HCCL_DATA_TYPE_FP32:
      over(
          float{}, [](float value) { return value; }, [](float value) { return value; });
      break;
    case HCCL_DATA_TYPE_FP16:
      over(std::uint16_t{}, from_half, [](float value) { return to_half(static_cast<double>(value)); });
      break;
    default:
      over(std::uint16_t{}, from_bf16, [](float value) { return to_bf16(static_cast<double>(value)); });
  }
  return result;
}

// The hub

class Hub {
 public:
  /// Listens under a name of its own; false where it cannot.
  bool listen(const std::string& name) {
    name_ = name;
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto [address, size] = address_of(name);
    if (socket_ < 0 || ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(socket_, 64) != 0)
      return false;
    std::thread([this] { run(); }).detach();
    return true;
  }

  /// An abstract name, which leaves no file behind.
  static std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
  }

  const std::string& name() const { return name_; }
  /// Returns once no answer is half sent.
  void settle() { const std::lock_guard<std::mutex> lock(answering_); }

 private:
  struct Message {
    Header header;
    Bytes data;
  };
  struct Rank {
    int socket = -1;
    bool closed = false;
    std::deque<Message> messages;
  };

  void run() {
    if (!gather()) return;
    for (std::size_t i = 0; i < ranks_.size(); ++i) std::thread([this, i] { read(i); }).detach();
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return fresh_; });
      fresh_ = false;
      while (step(lock)) continue;
      if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.closed; })) break;
    }
    for (const Rank& rank : ranks_) ::close(rank.socket);
    // The readers are at their end as well, but hold no lock now; the hub itself stays, as do its few bytes.
  }

  /// Waits for all ranks and tells them that all are there.
  bool gather() {
    std::size_t there = 0;
    const std::int64_t patience = seconds("HCCL_CONNECT_TIMEOUT", 120);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(patience);
    bool good = true;
    do {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      pollfd waiting{socket_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) {
        good = false;
        break;
      }
      const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      Hello hello;
      if (socket < 0) continue;
      set_patience(socket, patience);
      if (!receive_all(socket, &hello, sizeof hello) || hello.ranks == 0) {
        ::close(socket);
        continue;
      }
      set_patience(socket, 0);
      if (ranks_.empty()) ranks_.resize(hello.ranks);
      if (hello.ranks != ranks_.size() || hello.rank >= ranks_.size() || ranks_[hello.rank].socket >= 0) {
        engine().fault("HCCL: rank " + std::to_string(hello.rank) + " of " + std::to_string(hello.ranks) +
                       " comes to a communicator of " + std::to_string(ranks_.size()) + " or comes twice");
        const Answer refused{HCCL_E_PARA, 0, 0};
        send_all(socket, &refused, sizeof refused);
        ::close(socket);
        continue;
      }
      ranks_[hello.rank].socket = socket;
      ++there;
    } while (there < ranks_.size());
    ::close(socket_);
    const Answer answer{good ? HCCL_SUCCESS : HCCL_E_TIMEOUT, 0, 0};
    for (const Rank& rank : ranks_) {
      if (rank.socket < 0) continue;
      send_all(rank.socket, &answer, sizeof answer);
      if (!good) ::close(rank.socket);
    }
    return good;
  }

  void read(std::size_t rank) {
    for (;;) {
      Message message;
      bool good = receive_all(ranks_[rank].socket, &message.header, sizeof message.header);
      if (good) {
        message.data.resize(message.header.bytes);
        good = receive_all(ranks_[rank].socket, message.data.data(), message.data.size());
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      if (good) {
        ranks_[rank].messages.push_back(std::move(message));
      } else {
        ranks_[rank].closed = true;
      }
      fresh_ = true;
      changed_.notify_all();
      if (!good) return;
    }
  }

  void answer(Rank& rank, int result, const Bytes& data) {
    rank.messages.pop_front();
    const Answer answer{result, 0, data.size()};
    send_all(rank.socket, &answer, sizeof answer);
    if (!data.empty()) send_all(rank.socket, data.data(), data.size());
  }

  static bool meets(const Message& a, std::size_t rank, const Message& b, std::size_t other) {
    return a.header.call == Call::send && b.header.call == Call::receive && a.header.peer == other &&
           b.header.peer == rank;
  }

  /// Does what can be done; false if nothing can.
  bool step(std::unique_lock<std::mutex>&) {
    const std::lock_guard<std::mutex> whole(answering_);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      for (std::size_t j = 0; j < ranks_.size(); ++j) {
        if (i == j || ranks_[i].messages.empty() || ranks_[j].messages.empty()) continue;
        const Message &from = ranks_[i].messages.front(), &to = ranks_[j].messages.front();
        if (!meets(from, i, to, j)) continue;
        if (from.header.count != to.header.count || from.header.type != to.header.type) {
          quarrel("HcclSend and HcclRecv differ in count or type", {i, j});
        } else {
          const Bytes data = from.data;
          answer(ranks_[j], HCCL_SUCCESS, data);
          answer(ranks_[i], HCCL_SUCCESS, {});
        }
        return true;
      }
    }
    if (batch()) return true;
    const auto waiting = [](const Rank& rank) { return !rank.messages.empty(); };
    const auto gone = [](const Rank& rank) { return rank.closed && rank.messages.empty(); };
    if (std::any_of(ranks_.begin(), ranks_.end(), gone)) {
      bool any = false;
      for (Rank& rank : ranks_) {
        if (!waiting(rank)) continue;
        const Header& header = rank.messages.front().header;
        const bool two = header.call == Call::send || header.call == Call::receive;  // a batch names several
        if (two && !gone(ranks_[header.peer])) continue;
        answer(rank, HCCL_E_REMOTE, {});
        any = true;
      }
      return any;
    }
    if (!std::all_of(ranks_.begin(), ranks_.end(), waiting)) return false;
    const Header& first = ranks_[0].messages.front().header;
    bool same = first.call != Call::send && first.call != Call::receive && first.call != Call::batch;
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const Header& other = ranks_[i].messages.front().header;
      all.push_back(i);
      same = same && other.call == first.call && other.count == first.count && other.type == first.type &&
             other.operation == first.operation && other.peer == first.peer;
    }
    if (!same) {
      std::string text = "the ranks do not call the same:";
      for (const std::size_t i : all) {
        const Header& one = ranks_[i].messages.front().header;
        text += " " + std::string(name_of(one.call)) + " of " + std::to_string(one.count) + " (type " +
                std::to_string(one.type) + ", operation " + std::to_string(one.operation) + ", root " +
                std::to_string(one.peer) + ")";
      }
      quarrel(text, all);
      return true;
    }
    collect(first);
    return true;
  }

  static std::vector<Item> items_of(const Message& message) {
    std::vector<Item> items(message.header.count);
    if (!items.empty()) std::memcpy(items.data(), message.data.data(), items.size() * sizeof(Item));
    return items;
  }

  /// Does the batches of ranks that name each other, once all of them are there; false if there are no such.
  bool batch() {
    const auto ready = [this](std::size_t rank) {
      return !ranks_[rank].messages.empty() && ranks_[rank].messages.front().header.call == Call::batch;
    };
    for (std::size_t start = 0; start < ranks_.size(); ++start) {
      if (!ready(start)) continue;
      std::vector<std::size_t> group = {start};
      bool complete = true;
      for (std::size_t i = 0; i < group.size() && complete; ++i) {
        complete = ready(group[i]);
        if (!complete) break;
        for (const Item& item : items_of(ranks_[group[i]].messages.front()))
          if (std::find(group.begin(), group.end(), item.peer) == group.end()) group.push_back(item.peer);
      }
      if (!complete) continue;
      exchange(group);
      return true;
    }
    return false;
  }

  void exchange(const std::vector<std::size_t>& group) {
    // What each sends to each, in order.
    std::map<std::pair<std::size_t, std::size_t>, std::deque<std::pair<Item, Bytes>>> sent;
    for (const std::size_t rank : group) {
      const Message& message = ranks_[rank].messages.front();
      auto at = message.data.begin() + static_cast<std::ptrdiff_t>(message.header.count * sizeof(Item));
      for (const Item& item : items_of(message)) {
        if (item.receives != 0) continue;
        const auto end = at + static_cast<std::ptrdiff_t>(item.bytes);
        sent[{rank, item.peer}].emplace_back(item, Bytes(at, end));
        at = end;
      }
    }
    std::map<std::size_t, Bytes> results;
    bool good = true;
    for (const std::size_t rank : group) {
      for (const Item& item : items_of(ranks_[rank].messages.front())) {
        if (item.receives == 0) continue;
        auto& from = sent[{item.peer, rank}];
        good = good && !from.empty() && from.front().first.count == item.count && from.front().first.type == item.type;
        if (!good) break;
        results[rank].insert(results[rank].end(), from.front().second.begin(), from.front().second.end());
        from.pop_front();
      }
    }
    for (const auto& [pair, left] : sent) good = good && left.empty();
    if (!good) return quarrel("the sends and receives of batches do not go together", group);
    for (const std::size_t rank : group) answer(ranks_[rank], HCCL_SUCCESS, results[rank]);
  }

  void quarrel(const std::string& text, const std::vector<std::size_t>& who) {
    engine().fault("HCCL: " + text);
    for (const std::size_t i : who) answer(ranks_[i], HCCL_E_PARA, {});
  }

  void collect(const Header header) {
    std::vector<const Bytes*> parts;
    for (const Rank& rank : ranks_) parts.push_back(&rank.messages.front().data);
    std::vector<Bytes> results(ranks_.size());
    const auto slice = [&](const Bytes& all, std::size_t rank) {
      const std::size_t size = all.size() / ranks_.size();
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(rank * size);
      return Bytes(from, from + static_cast<std::ptrdiff_t>(size));
    };
    switch (header.call) {
      case Call::all_reduce:
        std::fill(results.begin(), results.end(), reduced(parts, header));
        break;
      case Call::reduce:
        results[header.peer] = reduced(parts, header);
        break;
      case Call::reduce_scatter: {
        const Bytes all = reduced(parts, header);
        for (std::size_t i = 0; i < ranks_.size(); ++i) results[i] = slice(all, i);
        break;
      }
      case Call::all_gather: {
        Bytes all;
        for (const Bytes* part : parts) all.insert(all.end(), part->begin(), part->end());
        std::fill(results.begin(), results.end(), all);
        break;
      }
      case Call::broadcast:
        for (std::size_t i = 0; i < ranks_.size(); ++i)
          if (i != header.peer) results[i] = *parts[header.peer];
        break;
      case Call::all_to_all:
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
          for (const Bytes* part : parts) {
            const Bytes piece = slice(*part, i);
            results[i].insert(results[i].end(), piece.begin(), piece.end());
          }
        }
        break;
      case Call::scatter:
        for (std::size_t i = 0; i < ranks_.size(); ++i) results[i] = slice(*parts[header.peer], i);
        break;
      default:
        break;
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) answer(ranks_[i], HCCL_SUCCESS, results[i]);
  }

  std::string name_;
  int socket_ = -1;
  std::mutex mutex_;
  std::mutex answering_;
  std::condition_variable changed_;
  bool fresh_ = false;
  std::vector<Rank> ranks_;
};

/// All hubs of the process. They are never taken down, since a rank elsewhere may still wait for an answer.
class Hubs {
 public:
  static Hubs& get() {
    static Hubs& hubs = *new Hubs;
    return hubs;
  }

  /// Under a name of its own unless one is given; empty where it cannot.
  std::string open(std::string name = {}) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    auto hub = std::make_unique<Hub>();
    if (name.empty())
      name = "stand-in-" + std::to_string(::getpid()) + "-" + std::to_string(hubs_.size()) + "-" + std::to_string(now);
    if (!hub->listen(name)) return {};
    hubs_.push_back(std::move(hub));
    return hubs_.back()->name();
  }

  void settle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& hub : hubs_) hub->settle();
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Hub>> hubs_;
};

/// A process that ends lets its hubs send what they have begun.
struct Farewell {
  ~Farewell() { Hubs::get().settle(); }
};
const Farewell farewell;

// Communicators

struct Communicator {
  std::uint32_t ranks = 1;
  std::uint32_t rank = 0;
  int device = 0;
  int socket = -1;
  std::string name;
  std::string hub;
  std::int64_t reserved = 0;
  std::mutex mutex;
  std::atomic<std::int64_t> pending{0};
  std::atomic<int> error{HCCL_SUCCESS};
  aclrtStream last_stream = nullptr;
};

int failure(HcclResult result, const std::string& text) {
  engine().failure(result, text);
  return result;
}

HcclResult refused(HcclResult result, const std::string& text) {
  return static_cast<HcclResult>(failure(result, text));
}

constexpr char kMagic[] = "STAND-IN HCCL ";

Communicator* find(HcclComm comm) {
  return comm != nullptr && engine().lives(Kind::communicator, comm) ? static_cast<Communicator*>(comm) : nullptr;
}

HcclResult join(const char* caller, const std::string& hub, std::uint32_t ranks, std::uint32_t rank, int device,
                HcclComm* out, bool patient = false) {
  const std::string name = caller;
  auto made = std::make_unique<Communicator>();
  made->ranks = ranks;
  made->rank = rank;
  made->device = device;
  made->hub = hub;
  static std::atomic<int> count{0};
  made->name = "stand_in_" + std::to_string(count++);
  // Two buffers a communicator. Of small devices they do not take all.
  made->reserved = std::min(2 * seconds("HCCL_BUFFSIZE", 200) << 20, engine().setting("memory_bytes") / 8);
  if (!engine().reserve(device, made->reserved)) return refused(HCCL_E_MEMORY, name + ": no memory for the buffers");
  const auto fails = [&](HcclResult result, const std::string& text) {
    engine().reserve(device, -made->reserved);
    if (made->socket >= 0) ::close(made->socket);
    return refused(result, name + ": " + text);
  };
  if (engine().setting("dry") == 0) {
    made->socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto [address, size] = Hub::address_of(hub);
    // The root of a part of a communicator may be late.
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::seconds(patient ? seconds("HCCL_CONNECT_TIMEOUT", 120) : 0);
    while (made->socket < 0 || ::connect(made->socket, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      if (made->socket < 0 || std::chrono::steady_clock::now() >= until)
        return fails(HCCL_E_TCP_CONNECT, "the root does not answer");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    set_patience(made->socket, seconds("HCCL_CONNECT_TIMEOUT", 120) + 5);
    const Hello hello{ranks, rank};
    Answer answer;
    if (!send_all(made->socket, &hello, sizeof hello) || !receive_all(made->socket, &answer, sizeof answer))
      return fails(HCCL_E_TIMEOUT, "the other ranks do not come");
    if (answer.result != HCCL_SUCCESS)
      return fails(static_cast<HcclResult>(answer.result), "the ranks do not come together");
    set_patience(made->socket, seconds("HCCL_EXEC_TIMEOUT", 1836));
  }
  engine().made(Kind::communicator, made.get());
  *out = made.release();
  return HCCL_SUCCESS;
}

struct Part {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// A rank's part, on the stream's thread: sends what goes before and the parts, waits for the answer and stores it.
int exchange(Communicator& one, Header header, const Bytes& before, const std::vector<Part>& sends,
             const std::vector<Part>& receives) {
  const std::lock_guard<std::mutex> lock(one.mutex);
  const std::string name = name_of(header.call);
  const auto fails = [&](int result, const std::string& text) {
    one.error = result;
    return engine().failure(ACL_ERROR_RT_AICPU_EXCEPTION, name + ": " + text);
  };
  header.bytes = before.size();
  std::size_t expected = 0;
  for (const Part& part : sends) header.bytes += part.bytes;
  for (const Part& part : receives) expected += part.bytes;
  for (const std::vector<Part>* parts : {&sends, &receives})
    for (const Part& part : *parts)
      if (engine().reach(part.data, part.bytes) == nullptr) return fails(HCCL_E_MEMORY, "the buffers are gone");
  bool good = send_all(one.socket, &header, sizeof header) && send_all(one.socket, before.data(), before.size());
  for (const Part& part : sends) good = good && send_all(one.socket, engine().reach(part.data, part.bytes), part.bytes);
  if (!good) return fails(HCCL_E_REMOTE, "the connection is lost");
  Answer answer;
  errno = 0;
  if (!receive_all(one.socket, &answer, sizeof answer))
    return fails(errno == EAGAIN ? HCCL_E_TIMEOUT : HCCL_E_REMOTE,
                 errno == EAGAIN ? "the other ranks do not answer" : "the connection is lost");
  Bytes data(answer.bytes);
  if (!receive_all(one.socket, data.data(), data.size())) return fails(HCCL_E_REMOTE, "the connection is lost");
  if (answer.result != HCCL_SUCCESS) {
    if (answer.result == HCCL_E_PARA) engine().fault(name + ": the ranks do not call the same");
    return fails(answer.result, answer.result == HCCL_E_REMOTE ? "another rank is gone" : "the ranks disagree");
  }
  if (data.empty()) return 0;
  if (data.size() != expected) return fails(HCCL_E_INTERNAL, "an answer of another size");
  const unsigned char* from = data.data();
  for (const Part& part : receives) {
    unsigned char* to = engine().reach(part.data, part.bytes);
    if (to == nullptr) return fails(HCCL_E_MEMORY, "the buffers are gone");
    std::memcpy(to, from, part.bytes);
    from += part.bytes;
  }
  return 0;
}

/// Queues a call whose arguments are checked.
HcclResult queue(Communicator* one, const Header& header, const Bytes& before, const std::vector<Part>& sends,
                 const std::vector<Part>& receives, aclrtStream stream) {
  const std::string name = name_of(header.call);
  if (one->pending > 0 && one->last_stream != stream)
    engine().fault(name + ": a call on another stream is not over, so that their order is open");
  one->last_stream = stream;
  Task task;
  task.name = name;
  task.launch = true;
  for (const Part& part : sends) task.touches.push_back({part.data, part.bytes, false, "the send buffer"});
  for (const Part& part : receives) task.touches.push_back({part.data, part.bytes, true, "the receive buffer"});
  for (const Touch& touch : task.touches) task.bytes += static_cast<double>(touch.bytes);
  // Whatever becomes of the task, it is no longer pending once it is gone.
  std::shared_ptr<void> token(nullptr, [one](void*) { --one->pending; });
  ++one->pending;
  task.run = [one, header, before, sends, receives, token = std::move(token)] {
    return exchange(*one, header, before, sends, receives);
  };
  return engine().submit(stream, std::move(task)) == 0 ? HCCL_SUCCESS : HCCL_E_RUNTIME;
}

/// Queues one call. Of the parts, `send` is read and `receive` written; null are those that this rank has not.
HcclResult call(Call what, HcclComm comm, aclrtStream stream, std::uint64_t count, HcclDataType type, int operation,
                std::uint32_t peer, const void* send, std::uint64_t send_count, void* receive,
                std::uint64_t receive_count) {
  const std::string name = name_of(what);
  Communicator* one = find(comm);
  if (one == nullptr) return refused(HCCL_E_PTR, name + ": no such communicator");
  if (engine().ready(name.c_str()) != 0) return HCCL_E_RUNTIME;
  if (engine().device() != one->device) return refused(HCCL_E_PARA, name + ": the thread's device is another");
  const std::size_t size = what == Call::barrier ? 1 : bytes_of(type);
  if (size == 0) return refused(HCCL_E_NOT_SUPPORT, name + ": type " + std::to_string(type));
  if (operation >= 0 && !reducible(type, static_cast<HcclReduceOp>(operation)))
    return refused(HCCL_E_NOT_SUPPORT, name + ": no such reduction of type " + std::to_string(type));
  if (peer >= one->ranks) return refused(HCCL_E_PARA, name + ": no rank " + std::to_string(peer));
  if (count == 0 && what != Call::barrier) return HCCL_SUCCESS;
  if ((send_count > 0 && send == nullptr) || (receive_count > 0 && receive == nullptr))
    return refused(HCCL_E_PTR, name + ": null");
  for (const void* buffer : {send, static_cast<const void*>(receive)}) {
    if (reinterpret_cast<std::uintptr_t>(buffer) % size == 0) continue;
    engine().fault(name + ": a buffer that is not aligned to its elements");
    return refused(HCCL_E_PARA, name + ": a buffer that is not aligned to its elements");
  }
  const std::size_t send_bytes = send_count * size, receive_bytes = receive_count * size;
  if (send_count > 0 && receive_count > 0 && (send != receive || send_count != receive_count)) {
    const auto *from = static_cast<const unsigned char*>(send), *to = static_cast<const unsigned char*>(receive);
    if (from < to + receive_bytes && to < from + send_bytes &&
        !(what == Call::all_gather && from == to + one->rank * send_bytes) &&
        !(what == Call::reduce_scatter && to == from + one->rank * receive_bytes)) {
      engine().fault(name + ": the buffers overlap");
      return refused(HCCL_E_PARA, name + ": the buffers overlap");
    }
  }
  Header header;
  header.call = what;
  header.type = what == Call::barrier ? 0 : type;
  header.operation = operation;
  header.peer = peer;
  header.count = count;
  std::vector<Part> sends, receives;
  if (send_bytes > 0) sends.push_back({send, send_bytes});
  if (receive_bytes > 0) receives.push_back({receive, receive_bytes});
  return queue(one, header, {}, sends, receives, stream);
}

}  // namespace

extern "C" {

HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo) {
  if (rootInfo == nullptr) return refused(HCCL_E_PTR, "HcclGetRootInfo: null");
  if (engine().ready("HcclGetRootInfo") != 0) return HCCL_E_RUNTIME;
  std::memset(rootInfo->internal, 0, sizeof rootInfo->internal);
  const std::string hub = engine().setting("dry") != 0 ? "dry" : Hubs::get().open();
  if (hub.empty()) return refused(HCCL_E_SYSCALL, "HcclGetRootInfo: no socket");
  std::snprintf(rootInfo->internal, sizeof rootInfo->internal, "%s%s", kMagic, hub.c_str());
  return HCCL_SUCCESS;
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, HcclComm* comm) {
  if (rootInfo == nullptr || comm == nullptr) return refused(HCCL_E_PTR, "HcclCommInitRootInfo: null");
  if (engine().ready("HcclCommInitRootInfo") != 0) return HCCL_E_RUNTIME;
  if (nRanks == 0 || rank >= nRanks) return refused(HCCL_E_PARA, "HcclCommInitRootInfo: no such rank");
  if (std::strncmp(rootInfo->internal, kMagic, sizeof kMagic - 1) != 0 ||
      std::memchr(rootInfo->internal, '\0', sizeof rootInfo->internal) == nullptr) {
    engine().fault("HcclCommInitRootInfo: not what HcclGetRootInfo wrote");
    return refused(HCCL_E_PARA, "HcclCommInitRootInfo: not what HcclGetRootInfo wrote");
  }
  return join("HcclCommInitRootInfo", rootInfo->internal + sizeof kMagic - 1, nRanks, rank, engine().device(), comm);
}

HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                      const HcclCommConfig* config, HcclComm* comm) {
  if (config == nullptr) return refused(HCCL_E_PTR, "HcclCommInitRootInfoConfig: null");
  return HcclCommInitRootInfo(nRanks, rootInfo, rank, comm);
}

HcclResult HcclCommInitAll(uint32_t ndev, int32_t* devices, HcclComm* comms) {
  if (devices == nullptr || comms == nullptr) return refused(HCCL_E_PTR, "HcclCommInitAll: null");
  if (engine().ready("HcclCommInitAll") != 0) return HCCL_E_RUNTIME;
  for (uint32_t i = 0; i < ndev; ++i)
    for (uint32_t j = 0; j < i; ++j)
      if (devices[i] == devices[j]) return refused(HCCL_E_PARA, "HcclCommInitAll: a device comes twice");
  if (ndev == 0) return refused(HCCL_E_PARA, "HcclCommInitAll: no devices");
  const std::string hub = engine().setting("dry") != 0 ? "dry" : Hubs::get().open();
  if (hub.empty()) return refused(HCCL_E_SYSCALL, "HcclCommInitAll: no socket");
  std::vector<std::thread> threads;
  std::atomic<int> worst{HCCL_SUCCESS};
  for (uint32_t i = 0; i < ndev; ++i) {
    threads.emplace_back([&, i] {
      const HcclResult result = join("HcclCommInitAll", hub, ndev, i, devices[i], comms + i);
      if (result != HCCL_SUCCESS) worst = result;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<HcclResult>(worst.load());
}

HcclResult HcclCommDestroy(HcclComm comm) {
  Communicator* one = find(comm);
  if (one == nullptr) {
    if (comm != nullptr) engine().fault("HcclCommDestroy: no such communicator, or one that was destroyed");
    return refused(HCCL_E_PTR, "HcclCommDestroy: no such communicator");
  }
  if (one->pending > 0) return refused(HCCL_E_AGAIN, "HcclCommDestroy: calls are not over");
  engine().gone(Kind::communicator, one);
  engine().reserve(one->device, -one->reserved);
  Hubs::get().settle();
  if (one->socket >= 0) ::close(one->socket);
  delete one;
  return HCCL_SUCCESS;
}

HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                         HcclComm comm, aclrtStream stream) {
  return call(Call::all_reduce, comm, stream, count, dataType, op, 0, sendBuf, count, recvBuf, count);
}

HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm,
                         aclrtStream stream) {
  const Communicator* one = find(comm);
  const bool mine = one != nullptr && one->rank == root;
  return call(Call::broadcast, comm, stream, count, dataType, -1, root, buf, mine ? count : 0, buf, mine ? 0 : count);
}

HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, HcclReduceOp op,
                             HcclComm comm, aclrtStream stream) {
  const Communicator* one = find(comm);
  return call(Call::reduce_scatter, comm, stream, recvCount, dataType, op, 0, sendBuf,
              one != nullptr ? recvCount * one->ranks : 0, recvBuf, recvCount);
}

HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType, HcclComm comm,
                         aclrtStream stream) {
  const Communicator* one = find(comm);
  return call(Call::all_gather, comm, stream, sendCount, dataType, -1, 0, sendBuf, sendCount, recvBuf,
              one != nullptr ? sendCount * one->ranks : 0);
}

HcclResult HcclReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                      uint32_t root, HcclComm comm, aclrtStream stream) {
  const Communicator* one = find(comm);
  return call(Call::reduce, comm, stream, count, dataType, op, root, sendBuf, count, recvBuf,
              one != nullptr && one->rank == root ? count : 0);
}

HcclResult HcclScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, uint32_t root,
                       HcclComm comm, aclrtStream stream) {
  const Communicator* one = find(comm);
  return call(Call::scatter, comm, stream, recvCount, dataType, -1, root, sendBuf,
              one != nullptr && one->rank == root ? recvCount * one->ranks : 0, recvBuf, recvCount);
}

HcclResult HcclSend(void* sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank, HcclComm comm,
                    aclrtStream stream) {
  const Communicator* one = find(comm);
  if (one != nullptr && one->rank == destRank) return refused(HCCL_E_PARA, "HcclSend: to itself");
  return call(Call::send, comm, stream, count, dataType, -1, destRank, sendBuf, count, nullptr, 0);
}

HcclResult HcclRecv(void* recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank, HcclComm comm,
                    aclrtStream stream) {
  const Communicator* one = find(comm);
  if (one != nullptr && one->rank == srcRank) return refused(HCCL_E_PARA, "HcclRecv: from itself");
  return call(Call::receive, comm, stream, count, dataType, -1, srcRank, nullptr, 0, recvBuf, count);
}

HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType, const void* recvBuf,
                        uint64_t recvCount, HcclDataType recvType, HcclComm comm, aclrtStream stream) {
  const Communicator* one = find(comm);
  if (sendCount != recvCount || sendType != recvType)
    return refused(HCCL_E_PARA, "HcclAlltoAll: what comes is not what goes");
  const std::uint64_t all = one != nullptr ? sendCount * one->ranks : 0;
  if (sendBuf == recvBuf && sendBuf != nullptr) {
    engine().fault("HcclAlltoAll: the buffers overlap");
    return refused(HCCL_E_PARA, "HcclAlltoAll: the buffers overlap");
  }
  return call(Call::all_to_all, comm, stream, sendCount, sendType, -1, 0, sendBuf, all, const_cast<void*>(recvBuf),
              all);
}

HcclResult HcclBatchSendRecv(HcclSendRecvItem* sendRecvInfo, uint32_t itemNum, HcclComm comm, aclrtStream stream) {
  Communicator* one = find(comm);
  if (one == nullptr || sendRecvInfo == nullptr) return refused(HCCL_E_PTR, "HcclBatchSendRecv: null");
  if (engine().ready("HcclBatchSendRecv") != 0) return HCCL_E_RUNTIME;
  if (engine().device() != one->device)
    return refused(HCCL_E_PARA, "HcclBatchSendRecv: the thread's device is another");
  Header header;
  header.call = Call::batch;
  header.count = itemNum;
  Bytes before(itemNum * sizeof(Item));
  std::vector<Part> sends, receives;
  for (uint32_t i = 0; i < itemNum; ++i) {
    const HcclSendRecvItem& given = sendRecvInfo[i];
    const std::size_t size = bytes_of(given.dataType);
    if (size == 0 || given.remoteRank >= one->ranks || given.remoteRank == one->rank || given.buf == nullptr ||
        given.count == 0 || (given.sendRecvType != HCCL_SEND && given.sendRecvType != HCCL_RECV))
      return refused(HCCL_E_PARA, "HcclBatchSendRecv: item " + std::to_string(i));
    Item item;
    item.receives = given.sendRecvType == HCCL_RECV ? 1 : 0;
    item.peer = given.remoteRank;
    item.type = given.dataType;
    item.count = given.count;
    item.bytes = given.count * size;
    std::memcpy(before.data() + i * sizeof item, &item, sizeof item);
    (item.receives != 0 ? receives : sends).push_back({given.buf, item.bytes});
  }
  return itemNum == 0 ? HCCL_SUCCESS : queue(one, header, before, sends, receives, stream);
}

HcclResult HcclCreateSubCommConfig(HcclComm* comm, uint32_t rankNum, uint32_t* rankIds, uint64_t subCommId,
                                   uint32_t subCommRankId, HcclCommConfig* config, HcclComm* subComm) {
  const Communicator* one = comm != nullptr ? find(*comm) : nullptr;
  if (one == nullptr || config == nullptr || subComm == nullptr)
    return refused(HCCL_E_PTR, "HcclCreateSubCommConfig: null");
  if (rankIds == nullptr && subCommId == 0xFFFFFFFFu) return HCCL_SUCCESS;  // a rank that is not in it
  if (rankIds == nullptr) return refused(HCCL_E_PTR, "HcclCreateSubCommConfig: null");
  bool good = rankNum > 0 && rankNum <= one->ranks && subCommRankId < rankNum;
  for (uint32_t i = 0; good && i < rankNum; ++i) {
    good = rankIds[i] < one->ranks;
    for (uint32_t j = 0; j < i; ++j) good = good && rankIds[j] != rankIds[i];
  }
  if (!good || rankIds[subCommRankId] != one->rank)
    return refused(HCCL_E_PARA, "HcclCreateSubCommConfig: not ranks of the communicator, or this is another");
  const std::string hub = one->hub + "-" + std::to_string(subCommId);
  if (engine().setting("dry") == 0 && subCommRankId == 0 && Hubs::get().open(hub).empty())
    return refused(HCCL_E_PARA, "HcclCreateSubCommConfig: the number " + std::to_string(subCommId) + " is in use");
  return join("HcclCreateSubCommConfig", hub, rankNum, subCommRankId, one->device, subComm, true);
}

HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  return call(Call::barrier, comm, stream, 0, HCCL_DATA_TYPE_INT8, -1, 0, nullptr, 0, nullptr, 0);
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize) {
  const Communicator* one = find(comm);
  if (one == nullptr || rankSize == nullptr) return refused(HCCL_E_PTR, "HcclGetRankSize: null");
  *rankSize = one->ranks;
  return HCCL_SUCCESS;
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank) {
  const Communicator* one = find(comm);
  if (one == nullptr || rank == nullptr) return refused(HCCL_E_PTR, "HcclGetRankId: null");
  *rank = one->rank;
  return HCCL_SUCCESS;
}

HcclResult HcclGetCommName(HcclComm comm, char* commName) {
  const Communicator* one = find(comm);
  if (one == nullptr || commName == nullptr) return refused(HCCL_E_PTR, "HcclGetCommName: null");
  std::snprintf(commName, 128, "%s", one->name.c_str());
  return HCCL_SUCCESS;
}

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError) {
  const Communicator* one = find(comm);
  if (one == nullptr || asyncError == nullptr) return refused(HCCL_E_PTR, "HcclGetCommAsyncError: null");
  *asyncError = static_cast<HcclResult>(one->error.load());
  return HCCL_SUCCESS;
}

const char* HcclGetErrorString(HcclResult code) {
  static const char* const texts[] = {"no error",
                                      "parameter error",
                                      "empty pointer",
                                      "memory error",
                                      "internal error",
                                      "feature not supported",
                                      "not found",
                                      "resource unavailable",
                                      "call of the system failed",
                                      "timeout",
                                      "open file failure",
                                      "tcp connect failure",
                                      "roce connect failure",
                                      "tcp transfer failure",
                                      "roce transfer failure",
                                      "runtime error",
                                      "driver error",
                                      "profiling error",
                                      "cce error",
                                      "network error",
                                      "operation again",
                                      "remote error",
                                      "suspending error"};
  return code >= HCCL_SUCCESS && code < HCCL_E_RESERVED ? texts[code] : "unknown error";
}

HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue) {
  if (config != HCCL_DETERMINISTIC || configValue.value < 0 || configValue.value > 1)
    return refused(HCCL_E_PARA, "HcclSetConfig: unknown");
  return HCCL_SUCCESS;  // always so
}

HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue* configValue) {
  if (config != HCCL_DETERMINISTIC || configValue == nullptr) return refused(HCCL_E_PARA, "HcclGetConfig: unknown");
  configValue->value = 1;
  return HCCL_SUCCESS;
}

}  // extern "C"
