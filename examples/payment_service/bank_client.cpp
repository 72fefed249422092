#include "bank_client.hpp"

#include <httplib.h>

#include <chrono>
#include <idempotency/error.hpp>
#include <nlohmann/json.hpp>

namespace shop {

namespace idem = idempotency;
using nlohmann::json;

namespace {

httplib::Client connect(int port) {
  httplib::Client client("127.0.0.1", port);
  client.set_tcp_nodelay(true);
  client.set_connection_timeout(std::chrono::seconds{1});
  client.set_read_timeout(patience);
  return client;
}

std::int64_t in_milliseconds(Time time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

std::string BankClient::charge(const std::string& reference, std::int64_t cents,
                               const std::string& card, Time valid_until) const {
  const json request{{"reference", reference},
                     {"cents", cents},
                     {"card", card},
                     {"valid_until", in_milliseconds(valid_until)}};
  httplib::Client client = connect(port_);
  const httplib::Result answer = client.Post("/charges", request.dump(), "application/json");
  if (!answer) {
    if (answer.error() == httplib::Error::Connection) {
      throw idem::RetryableFailure("the bank cannot be reached");
    }
    throw idem::OutcomeUnknown("the bank's answer is missing");
  }
  const json body = json::parse(answer->body, nullptr, false);
  if (answer->status == 402) {
    throw idem::PermanentFailure(body.value("reason", "the bank declines"));
  }
  if (answer->status == 408) throw idem::RetryableFailure("the request came too late to the bank");
  if (answer->status != 201 || !body.contains("charge_id")) {
    throw idem::OutcomeUnknown("the bank's answer cannot be understood");
  }
  return body["charge_id"].get<std::string>();
}

std::optional<BankClient::Charge> BankClient::find(const std::string& reference) const {
  const httplib::Result answer = connect(port_).Get("/charges/" + reference);
  if (!answer || answer->status != 200) throw idem::RetryableFailure("the bank cannot be asked");
  const json body = json::parse(answer->body);
  const auto& ids = body.at("charge_ids");
  if (ids.empty()) return std::nullopt;
  return Charge{ids.front().get<std::string>(), body.at("cents").get<std::int64_t>()};
}

}  // namespace shop
