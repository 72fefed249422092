#include "support/mariadb_middleman.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

namespace idempotency::testing_support {

namespace {

using Kind = MariaDbMiddleman::Interference::Kind;

constexpr std::size_t header_bytes = 4;  // three of length, one of sequence
constexpr unsigned char quit = 0x01;
constexpr unsigned char query = 0x03;
/// What libmysqlclient puts before the text of a query, when it and the server have agreed on attributes.
constexpr std::string_view no_attributes("\0\1", 2);
constexpr unsigned char prepare = 0x16;
constexpr unsigned char close_statement = 0x19;

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void close_if_open(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

bool send_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

/// False at the end of the connection.
bool receive(int descriptor, std::string& into) {
  std::array<char, 16'384> bytes{};
  ssize_t size = -1;
  do {
    size = ::recv(descriptor, bytes.data(), bytes.size(), 0);
  } while (size < 0 && errno == EINTR);
  if (size <= 0) return false;
  into.append(bytes.data(), static_cast<std::size_t>(size));
  return true;
}

unsigned char byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

/// The size of the packet at the beginning of `bytes`, its header included; nothing when it is not there as a whole.
std::optional<std::size_t> packet_size(std::string_view bytes) {
  if (bytes.size() < header_bytes) return std::nullopt;
  const std::size_t size =
      header_bytes + byte_at(bytes, 0) + (byte_at(bytes, 1) << 8U) + (byte_at(bytes, 2) << 16U);
  if (bytes.size() < size) return std::nullopt;
  return size;
}

void add_number(std::string& to, unsigned number, int bytes) {
  for (int index = 0; index < bytes; ++index)
    to += static_cast<char>((number >> (8 * index)) & 0xFFU);
}

std::string packet(unsigned sequence, std::string_view payload) {
  std::string bytes;
  add_number(bytes, static_cast<unsigned>(payload.size()), 3);
  add_number(bytes, sequence, 1);
  bytes += payload;
  return bytes;
}

std::string error_packet(unsigned sequence, unsigned code) {
  std::string payload = "\xff";
  add_number(payload, code, 2);
  payload += code == 1213 ? "#40001" : "#HY000";
  payload += "said in the server's place";
  return packet(sequence, payload);
}

/// Of an UPDATE of one row, with another answer behind it.
std::string update_packet(unsigned sequence) {
  constexpr unsigned in_transaction = 1;
  constexpr unsigned more_results = 8;
  std::string payload(1, '\0');
  add_number(payload, 1, 1);  // rows
  add_number(payload, 0, 1);  // last id
  add_number(payload, in_transaction | more_results, 2);
  add_number(payload, 0, 2);  // warnings
  const std::string info = "Rows matched: 1  Changed: 1  Warnings: 0";
  add_number(payload, static_cast<unsigned>(info.size()), 1);
  return packet(sequence, payload + info);
}

}  // namespace

struct MariaDbMiddleman::Connection {
  int client = -1;
  int server = -1;
  std::string from_client;       // less than a packet
  std::string_view before_text;  // of a query
  std::thread thread;
  bool ended = false;  // guarded by the mutex
};

MariaDbMiddleman::MariaDbMiddleman(std::uint16_t server_port) : server_port_(server_port) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener_ < 0) fail("socket");
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::pipe2(wake_, O_CLOEXEC) != 0) {
    fail("a middleman on the loopback interface");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_clients(); });
}

MariaDbMiddleman::~MariaDbMiddleman() {
  close_if_open(wake_[1]);  // every thread sees the end of this pipe
  acceptor_.join();
  for (const auto& connection : open_) {
    if (connection->thread.joinable()) connection->thread.join();
  }
  close_if_open(listener_);
  close_if_open(wake_[0]);
}

void MariaDbMiddleman::plan(Plan plan) {
  const std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}

std::uint64_t MariaDbMiddleman::commands() const {
  const std::lock_guard lock(mutex_);
  return commands_;
}

void MariaDbMiddleman::accept_clients() {
  while (true) {
    std::array<pollfd, 2> wait{pollfd{listener_, POLLIN, 0}, pollfd{wake_[0], POLLIN, 0}};
    if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return;
    if (wait[1].revents != 0) return;
    if (wait[0].revents == 0) continue;
    auto connection = std::make_unique<Connection>();
    connection->client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection->client < 0) continue;
    connection->server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(server_port_);
    if (connection->server < 0 ||
        ::connect(connection->server, reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) != 0) {
      close_if_open(connection->client);
      close_if_open(connection->server);
      continue;
    }
    const int on = 1;
    ::setsockopt(connection->client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(connection->server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const std::lock_guard lock(mutex_);
    open_.remove_if([](const std::unique_ptr<Connection>& old) {
      if (old->ended) old->thread.join();
      return old->ended;
    });
    open_.push_back(std::move(connection));
    Connection& opened = *open_.back();
    opened.thread = std::thread([this, &opened] {
      serve(opened);
      close_if_open(opened.client);
      close_if_open(opened.server);
      const std::lock_guard end(mutex_);
      opened.ended = true;
    });
  }
}

void MariaDbMiddleman::serve(Connection& connection) {
  while (true) {
    std::array<pollfd, 3> wait{pollfd{connection.client, POLLIN, 0},  // ignored when it is -1
                               pollfd{connection.server, POLLIN, 0}, pollfd{wake_[0], POLLIN, 0}};
    if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return;
    if (wait[2].revents != 0) return;
    if (wait[0].revents != 0) {
      if (!receive(connection.client, connection.from_client)) return;
      if (!pass_commands(connection)) return;
    }
    if (wait[1].revents != 0) {
      std::string answer;
      if (!receive(connection.server, answer)) return;
      if (connection.client >= 0 && !send_all(connection.client, answer)) return;
    }
  }
}

/// Whole packets only. False when the connection is of no use any more.
bool MariaDbMiddleman::pass_commands(Connection& connection) {
  while (const std::optional<std::size_t> size = packet_size(connection.from_client)) {
    const std::string bytes = connection.from_client.substr(0, *size);
    connection.from_client.erase(0, *size);
    bool passed = true;
    const bool is_command = byte_at(bytes, 3) == 0 && bytes.size() > header_bytes;
    if (is_command && !interfere(connection, bytes, passed)) return false;
    if (passed && !send_all(connection.server, bytes)) return false;
  }
  return true;
}

bool MariaDbMiddleman::interfere(Connection& connection, std::string_view bytes, bool& passed) {
  const unsigned char kind = byte_at(bytes, header_bytes);
  if (kind == quit || kind == close_statement) return true;
  Command command;
  if (kind == query || kind == prepare) command.text = bytes.substr(header_bytes + 1);
  if (kind == query && command.text.starts_with(no_attributes)) {
    connection.before_text = no_attributes;
    command.text.remove_prefix(no_attributes.size());
  }
  Interference planned;
  {
    const std::lock_guard lock(mutex_);
    command.number = commands_++;
    if (plan_) planned = plan_(command);
  }
  if (planned.kind == Kind::none) return true;
  passed = planned.kind == Kind::hung_up;
  if (planned.kind == Kind::hung_up) {
    close_if_open(connection.client);
    return true;
  }
  if (planned.kind == Kind::rolled_back) {
    std::string text(1, static_cast<char>(query));
    text += connection.before_text;
    text += "ROLLBACK";
    std::string answer;
    if (!send_all(connection.server, packet(0, text))) return false;
    while (!packet_size(answer)) {
      if (!receive(connection.server, answer)) return false;
    }
  }
  const bool several = command.commits() && command.text.find(';') != std::string_view::npos;
  if (several && !send_all(connection.client, update_packet(1))) return false;
  return send_all(connection.client, error_packet(several ? 2 : 1, planned.error));
}

}  // namespace idempotency::testing_support
