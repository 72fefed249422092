#include "support/redis_stand_in.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

namespace idempotency::testing_support {

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

bool send_all(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

/// Which of two sockets has something to read; -1 when the stand-in ends.
int readable(int first, int second, int ended) {
  std::array<pollfd, 3> wait{pollfd{first, POLLIN, 0}, pollfd{second, POLLIN, 0},
                             pollfd{ended, POLLIN, 0}};
  while (::poll(wait.data(), wait.size(), -1) < 0) {
    if (errno != EINTR) return -1;
  }
  if (wait[2].revents != 0) return -1;
  return wait[0].revents != 0 ? first : second;
}

/// What has come; empty at the end.
std::string_view receive(int from, std::array<char, 16384>& buffer) {
  ssize_t count = -1;
  do {
    count = ::recv(from, buffer.data(), buffer.size(), 0);
  } while (count < 0 && errno == EINTR);
  return {buffer.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
}

struct FreeReader {
  void operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }
};
struct FreeReply {
  void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};

void answer_all(int client, int ended, const RedisStandIn::Answer& answer) {
  const std::unique_ptr<redisReader, FreeReader> reader(redisReaderCreate());
  std::array<char, 16384> buffer{};
  while (true) {
    void* parsed = nullptr;
    if (redisReaderGetReply(reader.get(), &parsed) != REDIS_OK) return;
    if (parsed == nullptr) {
      if (readable(client, -1, ended) < 0) return;
      const std::string_view bytes = receive(client, buffer);
      if (bytes.empty()) return;
      if (redisReaderFeed(reader.get(), bytes.data(), bytes.size()) != REDIS_OK) return;
      continue;
    }
    const std::unique_ptr<redisReply, FreeReply> command(static_cast<redisReply*>(parsed));
    std::vector<std::string> words;
    for (std::size_t i = 0; i < command->elements; ++i)
      words.emplace_back(command->element[i]->str, command->element[i]->len);
    const std::string reply = answer(words);
    if (reply.empty() || !send_all(client, reply)) return;
  }
}

/// The same reply with another version in it, when it is a greeting.
std::string with_version(std::string_view reply, const std::string& version) {
  std::string text(reply);
  constexpr std::string_view name = "$7\r\nversion\r\n$";
  const std::size_t at = text.find(name);
  if (at == std::string::npos) return text;
  const std::size_t begin = at + name.size();
  const std::size_t end = text.find("\r\n", text.find("\r\n", begin) + 2);
  return text.replace(begin, end - begin, std::to_string(version.size()) + "\r\n" + version);
}

void relay(int client, int ended, std::uint16_t server_port, const std::string& version) {
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(server_port);
  std::array<char, 16384> buffer{};
  if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    while (true) {
      const int from = readable(client, server, ended);
      if (from < 0) break;
      const std::string_view bytes = receive(from, buffer);
      if (bytes.empty()) break;
      const bool sent =
          from == client ? send_all(server, bytes) : send_all(client, with_version(bytes, version));
      if (!sent) break;
    }
  }
  ::close(server);
}

}  // namespace

RedisStandIn::RedisStandIn(Answer answer)
    : RedisStandIn(OfServe{[answer = std::move(answer)](int client, int ended) {
        answer_all(client, ended, answer);
      }}) {}

std::unique_ptr<RedisStandIn> RedisStandIn::of_version(std::uint16_t server_port,
                                                       std::string version) {
  return std::unique_ptr<RedisStandIn>(
      new RedisStandIn(OfServe{[server_port, version = std::move(version)](int client, int ended) {
        relay(client, ended, server_port, version);
      }}));
}

RedisStandIn::RedisStandIn(OfServe of) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::pipe2(ended_, O_CLOEXEC) != 0) {
    fail("a stand-in on the loopback interface");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this, serve = std::move(of.serve)] { accept_clients(serve); });
}

RedisStandIn::~RedisStandIn() {
  ::close(ended_[1]);  // every thread sees the end of this pipe
  acceptor_.join();
  ::close(listener_);
  ::close(ended_[0]);
}

void RedisStandIn::accept_clients(const Serve& serve) {
  std::vector<std::jthread> threads;
  while (readable(listener_, -1, ended_[0]) >= 0) {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    threads.emplace_back([&serve, client, ended = ended_[0]] {
      serve(client, ended);
      ::close(client);
    });
  }
}

}  // namespace idempotency::testing_support
