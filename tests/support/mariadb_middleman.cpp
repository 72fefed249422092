#include "support/mariadb_middleman.hpp"

#include <array>
#include <optional>
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

/// False at the end of the connection.
bool receive(const Socket& from, std::string& into) {
  std::array<char, 16'384> buffer{};
  const std::string_view bytes = from.receive(buffer);
  into += bytes;
  return !bytes.empty();
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
  Socket client;
  Socket server;
  const Socket& ended;           // readable when the middleman ends
  std::string from_client;       // less than a packet
  std::string_view before_text;  // of a query
};

MariaDbMiddleman::MariaDbMiddleman(std::uint16_t server_port)
    : front_([this, server_port](Socket client, const Socket& ended) {
        Socket server = connected_to(server_port);
        if (!server) return;
        Connection connection{std::move(client), std::move(server), ended, {}, {}};
        serve(connection);
      }) {}

void MariaDbMiddleman::plan(Plan plan) {
  const std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}

std::uint64_t MariaDbMiddleman::commands() const {
  const std::lock_guard lock(mutex_);
  return commands_;
}

void MariaDbMiddleman::serve(Connection& connection) {
  while (true) {
    const auto readable = wait_to_read(connection.client, connection.server, connection.ended);
    if (!readable) return;
    if (readable->first) {
      if (!receive(connection.client, connection.from_client)) return;
      if (!pass_commands(connection)) return;
    }
    if (readable->second) {
      std::string answer;
      if (!receive(connection.server, answer)) return;
      if (connection.client && !connection.client.send(answer)) return;
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
    if (passed && !connection.server.send(bytes)) return false;
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
    connection.client.close();
    return true;
  }
  if (planned.kind == Kind::rolled_back) {
    std::string text(1, static_cast<char>(query));
    text += connection.before_text;
    text += "ROLLBACK";
    std::string answer;
    if (!connection.server.send(packet(0, text))) return false;
    while (!packet_size(answer)) {
      if (!receive(connection.server, answer)) return false;
    }
  }
  const bool several = command.commits() && command.text.find(';') != std::string_view::npos;
  if (several && !connection.client.send(update_packet(1))) return false;
  return connection.client.send(error_packet(several ? 2 : 1, planned.error));
}

}  // namespace idempotency::testing_support
