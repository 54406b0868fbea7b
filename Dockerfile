# vtkit serve: docker build -t vtkit-serve . && docker run --rm -p 127.0.0.1:8080:8080 -v "$PWD/runs:/runs:ro" vtkit-serve /runs/NAME
FROM python:3.11-slim

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY vtkit ./vtkit
# torch first, pinned, and without CUDA, as in the README
RUN pip install --no-cache-dir torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir -c constraints.txt ".[serve]" \
    && rm -rf /src

RUN useradd --system --no-create-home vtkit
USER vtkit
WORKDIR /
# no cache is kept between starts, and nothing is fetched
ENV HOME=/tmp VTKIT_CACHE=/tmp/vtkit HF_HUB_OFFLINE=1 NUMBA_CACHE_DIR=/tmp/numba
EXPOSE 8080
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health')"]
ENTRYPOINT ["vtkit", "serve", "--host", "0.0.0.0", "--port", "8080"]
CMD ["--help"]
