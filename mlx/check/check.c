// mlx-check [FOLDER] does what a program that uses the payload does, and prints what came out: one JSON
// object a line, "step" first. `payload verify` starts it where the payload lies and judges the numbers;
// this program judges nothing. A step that MLX gives an error for prints it as "failed".
//
// FOLDER is where the file of the step "safetensors" is written; without it that step is left out.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlx/c/mlx.h"

#ifdef _WIN32
#include <windows.h>
#define THREAD_LOCAL __declspec(thread)
#else
#include <pthread.h>
#define THREAD_LOCAL _Thread_local
#endif

static THREAD_LOCAL char failure[2048];

// MLX's own handler ends the process.
static void on_error(const char* message, void* data) {
  (void)data;
  snprintf(failure, sizeof failure, "%s", message);
}

static void print_string(const char* text) {
  putchar('"');
  for (const unsigned char* c = (const unsigned char*)text; *c; c++) {
    if (*c == '"' || *c == '\\') {
      printf("\\%c", *c);
    } else if (*c < 0x20) {
      printf("\\u%04x", *c);
    } else {
      putchar(*c);
    }
  }
  putchar('"');
}

static const char* step; // the one that runs

static void begin(const char* name) {
  step = name;
  failure[0] = 0;
  printf("{\"begins\":");
  print_string(name);
  printf("}\n");
  fflush(stdout); // what follows may end the process
}

static void open_result(void) {
  printf("{\"step\":");
  print_string(step);
}

static void close_result(void) {
  printf("}\n");
  fflush(stdout);
}

static void failed(void) {
  open_result();
  printf(",\"failed\":");
  print_string(failure);
  close_result();
}

static void print_floats(const char* key, const float* values, size_t count) {
  printf(",\"%s\":[", key);
  for (size_t i = 0; i < count; i++) {
    printf(i ? ",%.9g" : "%.9g", values[i]);
  }
  putchar(']');
}

// print_array prints the values of an array and frees it.
static void print_array(mlx_array array) {
  const float* values = NULL;
  if (mlx_array_eval(array) == 0) {
    values = mlx_array_data_float32(array);
  }
  if (!values) {
    failed();
  } else {
    open_result();
    print_floats("values", values, mlx_array_size(array));
    close_result();
  }
  mlx_array_free(array);
}

static void check_version(void) {
  begin("version");
  mlx_string version = mlx_string_new();
  if (mlx_version(&version)) {
    failed();
  } else {
    open_result();
    printf(",\"text\":");
    print_string(mlx_string_data(version));
    close_result();
  }
  mlx_string_free(version);
}

static void check_device(void) {
  begin("device");
  mlx_device device = mlx_device_new();
  mlx_device_type type = MLX_CPU;
  if (mlx_get_default_device(&device) || mlx_device_get_type(&type, device)) {
    failed();
  } else {
    open_result();
    printf(",\"text\":\"%s\"", type == MLX_GPU ? "GPU" : "CPU");
    close_result();
  }
  mlx_device_free(device);
}

// 1, 3, 5, …: an array made, multiplied and added to.
static void check_arrays(mlx_stream stream) {
  begin("arrays");
  mlx_array range = mlx_array_new(), twice = mlx_array_new(), odd = mlx_array_new();
  mlx_array two = mlx_array_new_float32(2), one = mlx_array_new_float32(1);
  if (mlx_arange(&range, 0, 100, 1, MLX_FLOAT32, stream) || mlx_multiply(&twice, range, two, stream) ||
      mlx_add(&odd, twice, one, stream)) {
    failed();
    mlx_array_free(odd);
  } else {
    print_array(odd);
  }
  mlx_array_free(range);
  mlx_array_free(twice);
  mlx_array_free(two);
  mlx_array_free(one);
}

// Whole numbers, so that the product is exact in every order of adding. No size is a multiple of a
// vector's or a tile's.
enum { ROWS = 33, INNER = 57, COLS = 29 };

static void check_matmul(mlx_stream stream) {
  begin("matmul");
  static float a[ROWS * INNER], b[INNER * COLS];
  for (int i = 0; i < ROWS; i++) {
    for (int k = 0; k < INNER; k++) {
      a[i * INNER + k] = (float)((i + 2 * k) % 7 - 3);
    }
  }
  for (int k = 0; k < INNER; k++) {
    for (int j = 0; j < COLS; j++) {
      b[k * COLS + j] = (float)((3 * k + j) % 5 - 2);
    }
  }
  mlx_array left = mlx_array_new_data(a, (int[]){ROWS, INNER}, 2, MLX_FLOAT32);
  mlx_array right = mlx_array_new_data(b, (int[]){INNER, COLS}, 2, MLX_FLOAT32);
  mlx_array product = mlx_array_new();
  if (mlx_matmul(&product, left, right, stream)) {
    failed();
    mlx_array_free(product);
  } else {
    print_array(product);
  }
  mlx_array_free(left);
  mlx_array_free(right);
}

// LAPACK is a library of its own; it works on the CPU alone.
static void check_inverse(void) {
  begin("inverse");
  mlx_stream cpu = mlx_default_cpu_stream_new();
  const float values[] = {4, 7, 2, 6};
  mlx_array matrix = mlx_array_new_data(values, (int[]){2, 2}, 2, MLX_FLOAT32);
  mlx_array inverse = mlx_array_new();
  if (mlx_linalg_inv(&inverse, matrix, cpu)) {
    failed();
    mlx_array_free(inverse);
  } else {
    print_array(inverse);
  }
  mlx_array_free(matrix);
  mlx_stream_free(cpu);
}

static void check_safetensors(const char* dir) {
  begin("safetensors");
  char path[4096];
  snprintf(path, sizeof path, "%s/check.safetensors", dir);
  const float values[] = {0, 0.5f, -1.25f, 3e-5f, 65504, -7};
  mlx_array array = mlx_array_new_data(values, (int[]){2, 3}, 2, MLX_FLOAT32);
  mlx_array back = mlx_array_new();
  mlx_map_string_to_array arrays = mlx_map_string_to_array_new(), read = mlx_map_string_to_array_new();
  mlx_map_string_to_string notes = mlx_map_string_to_string_new(), read_notes = mlx_map_string_to_string_new();
  mlx_stream cpu = mlx_default_cpu_stream_new();
  const char* note = NULL;
  if (mlx_map_string_to_array_insert(arrays, "weight", array) ||
      mlx_map_string_to_string_insert(notes, "format", "check") || mlx_save_safetensors(path, arrays, notes) ||
      mlx_load_safetensors(&read, &read_notes, path, cpu) || mlx_map_string_to_array_get(&back, read, "weight") ||
      mlx_map_string_to_string_get(&note, read_notes, "format") || mlx_array_eval(back)) {
    failed();
  } else {
    open_result();
    print_floats("values", mlx_array_data_float32(back), mlx_array_size(back));
    printf(",\"text\":");
    print_string(note);
    close_result();
  }
  mlx_stream_free(cpu);
  mlx_map_string_to_string_free(notes);
  mlx_map_string_to_string_free(read_notes);
  mlx_map_string_to_array_free(arrays);
  mlx_map_string_to_array_free(read);
  mlx_array_free(array);
  mlx_array_free(back);
}

// Shapes that can't be multiplied: an error, told through the handler, after which work goes on.
static void check_error(mlx_stream stream) {
  begin("error");
  const float values[6] = {0};
  mlx_array matrix = mlx_array_new_data(values, (int[]){2, 3}, 2, MLX_FLOAT32);
  mlx_array product = mlx_array_new();
  int status = mlx_matmul(&product, matrix, matrix, stream);
  open_result();
  printf(",\"status\":%d,\"text\":", status);
  print_string(failure);
  close_result();
  mlx_array_free(matrix);
  mlx_array_free(product);
}

enum { MEMORY_FLOATS = 1 << 18 }; // 1 MiB

static int allocate(mlx_array* array, mlx_stream stream) {
  return mlx_ones(array, (int[]){MEMORY_FLOATS}, 1, MLX_FLOAT32, stream) ||
      mlx_array_eval(*array);
}

static void check_memory(mlx_stream stream) {
  begin("memory");
  size_t before = 0, active = 0, peak = 0, freed = 0, cache = 0, cleared = 0, limit = 0, uncached = 0, back = 0;
  mlx_array array = mlx_array_new();
  int bad = mlx_clear_cache() || mlx_reset_peak_memory() || mlx_get_active_memory(&before) ||
      allocate(&array, stream) || mlx_get_active_memory(&active) || mlx_get_peak_memory(&peak);
  mlx_array_free(array);
  bad = bad || mlx_synchronize(stream) || mlx_get_active_memory(&freed) || mlx_get_cache_memory(&cache) ||
      mlx_clear_cache() || mlx_get_cache_memory(&cleared);
  // Without a cache what is freed goes back at once.
  array = mlx_array_new();
  bad = bad || mlx_set_cache_limit(&limit, 0) || allocate(&array, stream);
  mlx_array_free(array);
  bad = bad || mlx_synchronize(stream) || mlx_get_cache_memory(&uncached) || mlx_set_cache_limit(&back, limit);
  if (bad) {
    failed();
    return;
  }
  open_result();
  printf(",\"sizes\":{\"before\":%zu,\"active\":%zu,\"peak\":%zu,\"freed\":%zu,\"cache\":%zu,\"cleared\":%zu", before, active,
      peak, freed, cache, cleared);
  printf(",\"limit\":%zu,\"uncached\":%zu,\"limit_then\":%zu}", limit, uncached, back);
  close_result();
}

// An array is evaluated by the thread whose stream it was made for, so every thread has its own.
enum { THREADS = 4, ROUNDS = 50 };

struct work {
  int number;
  float sum;
  int bad;
  char failure[sizeof failure];
};

static void work_on(struct work* work) {
  mlx_device device = mlx_device_new();
  work->bad = mlx_get_default_device(&device);
  mlx_stream stream = mlx_stream_new_device(device);
  for (int round = 0; round < ROUNDS && !work->bad; round++) {
    mlx_array range = mlx_array_new(), sum = mlx_array_new();
    float value = 0;
    work->bad = mlx_arange(&range, work->number, work->number + 1000, 1, MLX_FLOAT32, stream) ||
        mlx_sum(&sum, range, false, stream) || mlx_array_eval(sum) || mlx_array_item_float32(&value, sum);
    if (round > 0 && value != work->sum) {
      value = -1; // not the same each time
      round = ROUNDS;
    }
    work->sum = value;
    mlx_array_free(range);
    mlx_array_free(sum);
  }
  memcpy(work->failure, failure, sizeof failure);
  mlx_stream_free(stream);
  mlx_device_free(device);
}

#ifdef _WIN32
static DWORD WINAPI thread_main(void* work) {
  work_on(work);
  return 0;
}
#else
static void* thread_main(void* work) {
  work_on(work);
  return NULL;
}
#endif

static void check_threads(void) {
  begin("threads");
  static struct work work[THREADS];
#ifdef _WIN32
  HANDLE threads[THREADS];
#else
  pthread_t threads[THREADS];
#endif
  float sums[THREADS];
  for (int i = 0; i < THREADS; i++) {
    work[i].number = i;
#ifdef _WIN32
    threads[i] = CreateThread(NULL, 0, thread_main, &work[i], 0, NULL);
    int bad = threads[i] == NULL;
#else
    int bad = pthread_create(&threads[i], NULL, thread_main, &work[i]);
#endif
    if (bad) {
      snprintf(failure, sizeof failure, "thread %d can't be started", i);
      failed();
      exit(1); // the others still work with what lies here
    }
  }
  int bad = 0;
  for (int i = 0; i < THREADS; i++) {
#ifdef _WIN32
    WaitForSingleObject(threads[i], INFINITE);
    CloseHandle(threads[i]);
#else
    pthread_join(threads[i], NULL);
#endif
    sums[i] = work[i].sum;
    if (work[i].bad && !bad) {
      bad = 1;
      memcpy(failure, work[i].failure, sizeof failure);
    }
  }
  if (bad) {
    failed();
    return;
  }
  open_result();
  print_floats("values", sums, THREADS);
  close_result();
}

int main(int argc, char** argv) {
  mlx_set_error_handler(on_error, NULL, NULL);
  check_version();
  check_device();
  mlx_device device = mlx_device_new();
  mlx_stream stream = mlx_stream_new();
  if (mlx_get_default_device(&device) || mlx_get_default_stream(&stream, device)) {
    failed();
    return 1;
  }
  check_arrays(stream);
  check_matmul(stream);
  check_inverse();
  if (argc > 1) {
    check_safetensors(argv[1]);
  }
  check_error(stream);
  check_memory(stream);
  check_threads();
  mlx_stream_free(stream);
  mlx_device_free(device);
  begin("end");
  if (argc > 1) {
    while (getchar() != EOF) { // until then the process can be looked at
    }
  }
  return 0;
}
