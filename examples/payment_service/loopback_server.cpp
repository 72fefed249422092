#include "loopback_server.hpp"

#include <atomic>
#include <chrono>
#include <iostream>
#include <stdexcept>
#include <thread>

namespace shop {

LoopbackServer::LoopbackServer() {
  sigemptyset(&stop_signals_);
  sigaddset(&stop_signals_, SIGTERM);
  sigaddset(&stop_signals_, SIGINT);
  if (pthread_sigmask(SIG_BLOCK, &stop_signals_, nullptr) != 0) {
    throw std::runtime_error("signals cannot be blocked");
  }
}

void LoopbackServer::serve(std::size_t connections) {
  http_.new_task_queue = [connections] { return new httplib::ThreadPool(connections); };
  http_.set_tcp_nodelay(true);
  http_.set_keep_alive_max_count(1'000'000);
  http_.set_keep_alive_timeout(2);

  const int port = http_.bind_to_any_port("127.0.0.1");
  if (port <= 0) throw std::runtime_error("no port to listen at");

  std::atomic<bool> ended{false};
  std::thread stopper([&] {
    int signal = 0;
    if (sigwait(&stop_signals_, &signal) != 0) return;
    while (!http_.is_running() && !ended)
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    http_.stop();
  });
  std::cout << port << std::endl;  // connections are accepted from here on
  http_.listen_after_bind();
  ended = true;
  pthread_kill(stopper.native_handle(), SIGTERM);
  stopper.join();
}

}  // namespace shop
