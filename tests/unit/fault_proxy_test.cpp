#include "support/fault_proxy.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace idempotency::testing_support {
namespace {

int bound_socket(std::uint16_t port) {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  EXPECT_EQ(
      port == 0 ? ::bind(made, generic, sizeof address) : ::connect(made, generic, sizeof address),
      0);
  return made;
}

/// Answers each thing that it reads with the same in capitals, and counts.
class Shouter {
 public:
  Shouter() : listener_(bound_socket(0)) {
    EXPECT_EQ(::listen(listener_, 8), 0);
    thread_ = std::thread([this] { run(); });
  }
  Shouter(const Shouter&) = delete;
  Shouter& operator=(const Shouter&) = delete;
  ~Shouter() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (std::thread& each : served_)
      each.join();
    ::close(listener_);
  }
  [[nodiscard]] std::uint16_t port() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
  }
  [[nodiscard]] int heard() const { return heard_; }

 private:
  void run() {
    while (true) {
      const int client = ::accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      served_.emplace_back([this, client] {
        std::array<char, 64> bytes{};
        for (ssize_t size = 0; (size = ::recv(client, bytes.data(), bytes.size(), 0)) > 0;) {
          ++heard_;
          for (char& byte : bytes)
            byte = static_cast<char>(std::toupper(byte));
          ::send(client, bytes.data(), static_cast<std::size_t>(size), MSG_NOSIGNAL);
        }
        ::close(client);
      });
    }
  }

  int listener_;
  std::atomic<int> heard_{0};
  std::vector<std::thread> served_;
  std::thread thread_;
};

class FaultProxyTest : public ::testing::Test {
 protected:
  /// What a client hears to "abc": the answer, "end", "reset" or "silence".
  [[nodiscard]] static std::string heard_by(int client) {
    if (::send(client, "abc", 3, MSG_NOSIGNAL) != 3) return "cannot send";
    std::string answer;
    while (answer.size() < 3) {
      pollfd wait{client, POLLIN, 0};
      if (::poll(&wait, 1, 300) == 0) return answer + "silence";
      std::array<char, 8> bytes{};
      const ssize_t size = ::recv(client, bytes.data(), bytes.size(), 0);
      if (size == 0) return answer + "end";
      if (size < 0) return answer + "reset";
      answer.append(bytes.data(), static_cast<std::size_t>(size));
    }
    return answer;
  }
  [[nodiscard]] std::string with(NetworkFault fault) {
    proxy.harm_next(fault);
    const int client = bound_socket(proxy.port());
    std::string heard = heard_by(client);
    ::close(client);
    return heard;
  }

  Shouter server;
  FaultProxy proxy{server.port()};
};

TEST_F(FaultProxyTest, PassesOnWhatIsNotHarmed) {
  EXPECT_EQ(with(NetworkFault::none), "ABC");
  EXPECT_EQ(with(NetworkFault::delayed), "ABC");
  EXPECT_EQ(with(NetworkFault::trickle), "ABC");
  EXPECT_EQ(proxy.requests(), 3U);
  EXPECT_EQ(proxy.harmed(), 2U);
}

TEST_F(FaultProxyTest, LosesARequestBeforeTheServerHearsIt) {
  EXPECT_NE(with(NetworkFault::cut_before_request), "ABC");
  EXPECT_EQ(with(NetworkFault::half_open), "silence");
  EXPECT_EQ(server.heard(), 0);
}

// With more to send than the sockets hold, so that the end comes in the middle.
TEST_F(FaultProxyTest, EndsARequestInItsMiddleSoThatTheNextWriteMeetsEpipe) {
  proxy.harm_next(NetworkFault::reset_in_request);
  const int client = bound_socket(proxy.port());
  const std::string bytes(std::size_t{64} << 20U, 'a');

  std::size_t sent = 0;
  ssize_t size = 0;
  while (sent < bytes.size() && size >= 0) {
    size = ::send(client, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (size > 0) sent += static_cast<std::size_t>(size);
  }
  const int error = errno;

  EXPECT_EQ(size, -1);
  EXPECT_EQ(error, EPIPE);
  EXPECT_EQ(server.heard(), 0);
  ::close(client);
}

TEST_F(FaultProxyTest, LosesAReplyAfterTheServerHasAnswered) {
  EXPECT_EQ(with(NetworkFault::cut_before_reply), "end");
  EXPECT_EQ(with(NetworkFault::reset_before_reply), "reset");
  EXPECT_EQ(with(NetworkFault::reply_swallowed), "silence");
  EXPECT_EQ(server.heard(), 3);
}

TEST_F(FaultProxyTest, HarmsTheRequestThatWasMeant) {
  proxy.harm(1, NetworkFault::cut_before_reply);
  const int client = bound_socket(proxy.port());

  EXPECT_EQ(heard_by(client), "ABC");
  EXPECT_EQ(heard_by(client), "end");

  ::close(client);
}

}  // namespace
}  // namespace idempotency::testing_support
