// A Boost.Beast server whose clients may send a request again: same Idempotency-Key, same answer, one effect.

#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

#include <idempotency/edges/beast.hpp>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>

#include "expect.hpp"

namespace idem = idempotency;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

int main() {
  idem::MemoryStore store;  // in a service: SqliteStore, RedisStore or MySqlStore
  idem::IdempotencyGuard guard{store};
  idem::HttpIdempotency payments{guard, {.type = "payment"}};  // `hold`, 30 days
  int charges = 0;

  boost::asio::io_context context;
  tcp::acceptor acceptor{context, {boost::asio::ip::address_v4::loopback(), 0}};
  std::thread serving([&] {
    tcp::socket client = acceptor.accept();
    boost::beast::flat_buffer buffer;
    for (int served = 0; served < 3; ++served) {
      Request request;
      http::read(client, buffer, request);
      // Who asks is what the service has authenticated; here the token is the account.
      const std::string account{request[http::field::authorization]};
      http::write(client,
                  idem::answer_idempotently(
                      payments, request, {.principal = account, .route = "/payments"},
                      [&](idem::Execution* execution) {
                        execution->point_of_no_return();  // from here on a failure is "unknown"
                        Response response{http::status::created, request.version()};
                        response.set(http::field::location,
                                     "/payments/" + std::to_string(++charges));
                        response.body() = request.body();
                        response.prepare_payload();
                        return response;
                      }));
    }
  });

  tcp::socket server{context};
  server.connect(acceptor.local_endpoint());
  boost::beast::flat_buffer buffer;
  const auto pay = [&](const std::string& body) {
    Request request{http::verb::post, "/payments", 11, body};
    request.set("Idempotency-Key", R"("8e03978e")");
    request.set(http::field::authorization, "alice");
    request.prepare_payload();
    http::write(server, request);
    Response response;
    http::read(server, buffer, response);
    return response;
  };
  const Response first = pay("100 cents");
  const Response again = pay("100 cents");
  const Response other = pay("999 cents");
  serving.join();

  expect(first.result_int() == 201 && first.count("Idempotent-Replayed") == 0, "it ran");
  expect(again.result_int() == 201 && again.body() == first.body(), "the same answer");
  expect(again["Location"] == "/payments/1", "with its Location");
  expect(again["Idempotent-Replayed"] == "true", "marked as a replay");
  expect(other.result_int() == 422, "another payment under the same key is refused");
  expect(charges == 1, "one charge");
}
