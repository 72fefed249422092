// Boost.Beast over a real socket, asked by a client that nobody here wrote, behind a network that loses replies.

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "idempotency/edges/beast.hpp"
#include "idempotency/guard.hpp"
#include "idempotency/stores/memory.hpp"
#include "support/client_program.hpp"
#include "support/fault_proxy.hpp"

namespace idempotency {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using testing_support::ClientProgramTest;
using testing_support::FaultProxy;
using testing_support::NetworkFault;
using Request = beast_http::request<beast_http::string_body>;
using Response = beast_http::response<beast_http::string_body>;

/// Serves a request a connection, one after the other.
class BeastBank {
 public:
  BeastBank() : serving_([this] { serve(); }) {}
  BeastBank(const BeastBank&) = delete;
  BeastBank& operator=(const BeastBank&) = delete;
  ~BeastBank() {
    stopping_ = true;
    asio::io_context context;
    boost::system::error_code refused;
    asio::ip::tcp::socket(context).connect(acceptor_.local_endpoint(refused), refused);  // wakes it
    serving_.join();
  }

  [[nodiscard]] std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  [[nodiscard]] int effects() const noexcept { return effects_; }

 private:
  void serve() {
    while (true) {
      asio::ip::tcp::socket client = acceptor_.accept();
      if (stopping_) return;
      answer(client);
    }
  }
  void answer(asio::ip::tcp::socket& client) {
    boost::beast::flat_buffer buffer;
    boost::system::error_code broken;
    Request request;
    beast_http::read(client, buffer, request, broken);
    if (broken) return;
    Response response =
        answer_idempotently(http_, request, {.principal = "alice"}, [&] { return pay(request); });
    response.keep_alive(false);
    beast_http::write(client, response, broken);
  }
  Response pay(const Request& request) {
    Response response(beast_http::status::created, request.version());
    response.set(beast_http::field::location, "/payments/" + request.body());
    response.body() = "effect " + std::to_string(++effects_) + '\n';
    response.prepare_payload();
    return response;
  }

  asio::io_context context_;
  asio::ip::tcp::acceptor acceptor_{context_, {asio::ip::address_v4::loopback(), 0}};
  MemoryStore store_;
  IdempotencyGuard<MemoryStore> guard_{store_};
  HttpIdempotency<IdempotencyGuard<MemoryStore>> http_{guard_};
  std::atomic<int> effects_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread serving_;
};

class CurlToBeast : public ClientProgramTest {
 protected:
  CurlToBeast() : ClientProgramTest("curl") {}
};

TEST_F(CurlToBeast, RepeatsARequestWhoseReplyWasLostAndGetsTheFirstAnswer) {
  BeastBank bank;
  FaultProxy proxy(bank.port());
  proxy.harm_next(NetworkFault::cut_before_reply);

  std::string answer;
  for (const std::string& line :
       output_of({"--silent", "--show-error", "--include", "--retry", "3", "--retry-all-errors",
                  "--header", "Idempotency-Key: \"7f3d\"", "--data", "7",
                  "http://127.0.0.1:" + std::to_string(proxy.port()) + "/pay"})) {
    answer += line + '\n';
  }
  answer.erase(0, answer.rfind("HTTP/1.1 "));

  EXPECT_TRUE(answer.starts_with("HTTP/1.1 201 ")) << answer;
  EXPECT_NE(answer.find("Idempotent-Replayed: true\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("Location: /payments/7\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("\neffect 1\n"), std::string::npos) << answer;
  EXPECT_EQ(bank.effects(), 1);
  EXPECT_EQ(proxy.requests(), 2U);
}

}  // namespace
}  // namespace idempotency
