#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message_lite.h>

#include "idempotency/codec.hpp"

namespace idempotency {
inline namespace v0 {

/// A codec for a protobuf message: derive `Codec<T>` from it. Its name is the message's full name.
///
///     template <>
///     struct idempotency::Codec<shop::Receipt> : idempotency::ProtobufCodec<shop::Receipt> {};
///
/// Equal messages give equal bytes within one version of the message and of protobuf.
///
/// Errors: `Errc::codec_unencodable` when a required field is missing, a string is not UTF-8 or the
/// message is larger than 2 GiB; `Errc::codec_corrupt` when the recorded bytes are not those of a
/// message.
template <std::derived_from<google::protobuf::MessageLite> T>
struct ProtobufCodec {
  [[nodiscard]] static std::string name() {
    return std::string(T::default_instance().GetTypeName());
  }

  static void encode(const T& message, std::string& out) {
    if (!message.IsInitialized()) {
      detail::throw_codec_unencodable("a required field of the message is missing");
    }
    if (message.ByteSizeLong() > max_bytes) {
      detail::throw_codec_unencodable("the message is larger than 2 GiB");
    }
    const std::string bytes = serialised(message);
    // Text that is not UTF-8 is written without complaint and refused when it is read.
    T probe;
    if (!probe.ParseFromString(bytes)) {
      detail::throw_codec_unencodable("a string of the message is not UTF-8");
    }
    append_sized(out, bytes);
  }

  static T decode(ByteReader& in) {
    const std::string_view bytes = in.take_sized();
    T message;
    if (bytes.size() > max_bytes ||
        !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      detail::throw_codec_corrupt("the bytes are not those of the protobuf message");
    }
    return message;
  }

 private:
  static constexpr std::size_t max_bytes = std::numeric_limits<int>::max();

  static std::string serialised(const T& message) {
    std::string bytes;
    bool good = false;
    {
      google::protobuf::io::StringOutputStream stream(&bytes);
      google::protobuf::io::CodedOutputStream coded(&stream);
      coded.SetSerializationDeterministic(true);  // the order of map fields
      good = message.SerializeToCodedStream(&coded) && !coded.HadError();
    }
    if (!good) detail::throw_codec_unencodable("protobuf cannot serialise the message");
    return bytes;
  }
};

}  // namespace v0
}  // namespace idempotency
