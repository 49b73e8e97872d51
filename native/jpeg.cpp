#include "jpeg.h"

#include <jerror.h>

#include <algorithm>
#include <string>

#include "exif.h"
#include "jpeg_header.h"
#include "jpeg_scans.h"

namespace unstarve {
namespace {

constexpr int exif_marker = JPEG_APP0 + 1;

constexpr char truncated[] = "truncated: the JPEG data end too early";

JpegErrors &errors_of(j_common_ptr info) { return *reinterpret_cast<JpegErrors *>(info->err); }

[[noreturn]] void leave_with(j_common_ptr info, const char *message) {
    JpegErrors &errors = errors_of(info);
    std::snprintf(errors.message, sizeof errors.message, "%s", message);
    std::longjmp(errors.jump, 1);
}

[[noreturn]] void leave(j_common_ptr info) {
    if (info->err->msg_code == JERR_OUT_OF_MEMORY) {
        leave_with(info, no_memory);
    }
    char reason[JMSG_LENGTH_MAX];
    info->err->format_message(info, reason);
    JpegErrors &errors = errors_of(info);
    std::snprintf(errors.message, sizeof errors.message, "damaged JPEG: %.*s",
                  static_cast<int>(sizeof errors.message) - 32, reason);
    std::longjmp(errors.jump, 1);
}

// Warnings: what can be seen of a damaged image is used, as Pillow does.
void go_on(j_common_ptr, int) {}
void say_nothing(j_common_ptr) {}

void do_nothing(j_decompress_ptr) {}

// The whole file is there from the start: when it has been read, there is no more.
boolean run_dry(j_decompress_ptr info) { leave_with(reinterpret_cast<j_common_ptr>(info), truncated); }

void skip_bytes(j_decompress_ptr info, long count) {
    jpeg_source_mgr &source = *info->src;
    if (count > 0 && static_cast<unsigned long>(count) > source.bytes_in_buffer) {
        run_dry(info);
    }
    if (count > 0) {
        source.next_input_byte += count;
        source.bytes_in_buffer -= static_cast<std::size_t>(count);
    }
}

}  // namespace

bool looks_like_jpeg(const std::uint8_t *data, std::size_t size) {
    return size >= 3 && data[0] == 0xFF && data[1] == 0xD8 && data[2] == 0xFF;
}

// Runs one call of libjpeg. Nothing with a destructor may live in it: an error jumps out past it.
template <typename Call>
void Jpeg::guarded(Call call) {
    if (setjmp(errors_.jump) != 0) {
        throw ImageError(errors_.message);
    }
    call();
}

Jpeg::Jpeg(const std::uint8_t *data, std::size_t size, bool upright) : data_(data), size_(size) {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = leave;
    errors_.manager.emit_message = go_on;
    errors_.manager.output_message = say_nothing;
    source_ = {data, size, do_nothing, run_dry, skip_bytes, jpeg_resync_to_restart, do_nothing};
    try {
        read_header(upright);
    } catch (...) {
        jpeg_destroy_decompress(&info_);  // of which nothing may have been made yet: that is allowed
        throw;
    }
}

Jpeg::~Jpeg() { jpeg_destroy_decompress(&info_); }

void Jpeg::read_header(bool upright) {
    guarded([this] {
        jpeg_create_decompress(&info_);
        info_.src = &source_;
        jpeg_save_markers(&info_, exif_marker, 0xFFFF);
        jpeg_read_header(&info_, TRUE);
    });
    check_size();
    Metadata metadata;
    for (jpeg_saved_marker_ptr marker = info_.marker_list; marker != nullptr && upright; marker = marker->next) {
        metadata.add_app1(marker->data, marker->data_length);
    }
    orientation_ = metadata.orientation();
}

// Before anything is allocated for the image's size.
void Jpeg::check_size() const {
    const std::uint64_t pixels = info_.image_width * std::uint64_t{info_.image_height};
    if (pixels > max_pixels) {
        throw ImageError("more than the " + std::to_string(max_pixels) + " pixels that are decoded");
    }
    if (pixels / max_pixels_per_byte > size_) {
        throw ImageError(truncated);
    }
}

bool Jpeg::supported() const {
    const J_COLOR_SPACE space = info_.jpeg_color_space;
    return info_.data_precision == 8 && !info_.arith_code &&
           (space == JCS_YCbCr || space == JCS_RGB || space == JCS_GRAYSCALE);
}

// Whether or not the window is before the damage.
void Jpeg::check_complete() const {
    if (!has_jpeg_end(source_.next_input_byte, data_ + size_)) {
        throw ImageError(truncated);
    }
    const std::uint64_t scans = count_jpeg_scans(data_, size_);
    const std::uint64_t most = max_jpeg_scans(info_.image_width * std::uint64_t{info_.image_height});
    if (scans > most) {
        throw ImageError("it has " + std::to_string(scans) + " scans; the limit at its size is " +
                           std::to_string(most));
    }
}

void Jpeg::start(const Window &window, std::size_t pixel_bytes) {
    check_complete();
    info_.out_color_space = pixel_bytes == 4 ? JCS_EXT_RGBX : JCS_EXT_RGB;
    guarded([this] { jpeg_start_decompress(&info_); });
    crop_columns(window);
    if (window.top > 0) {
        // Skipped rows are read from the file but not computed.
        guarded([&] { jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(window.top)); });
    }
}

// Colours are stored for every other pixel or so and blended over the border of two of them; at a window's edge
// the neighbour is missing. So the window is decoded with such a neighbour on each side.
void Jpeg::crop_columns(const Window &window) {
    const auto around = 2 * static_cast<std::size_t>(info_.max_h_samp_factor);
    const std::size_t left = window.left - std::min(window.left, around);
    const std::size_t right = std::min<std::size_t>(window.left + window.width + around, info_.output_width);
    margin_ = window.left;
    if (left == 0 && right == info_.output_width) {
        return;
    }
    auto offset = static_cast<JDIMENSION>(left);
    auto width = static_cast<JDIMENSION>(right - left);
    guarded([&] { jpeg_crop_scanline(&info_, &offset, &width); });
    margin_ = window.left - offset;
}

void Jpeg::read_row(std::uint8_t *pixels) {
    guarded([&] {
        JSAMPROW rows[] = {pixels};
        jpeg_read_scanlines(&info_, rows, 1);
    });
}

}  // namespace unstarve
