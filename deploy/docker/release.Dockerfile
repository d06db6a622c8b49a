# The image of a release, from the statically linked binaries of both architectures. The workflow "Release" builds it;
# to build an image from the sources, use Dockerfile.

# The image below has no shell that could make them.
FROM --platform=$BUILDPLATFORM debian:bookworm-slim AS layout
RUN mkdir /data /links && ln -s /usr/local/bin/tidegate /links/ratelimit && ln -s ratelimit /links/limitador-server

FROM gcr.io/distroless/static-debian12
ARG TARGETARCH
COPY ${TARGETARCH}/tidegate /usr/local/bin/tidegate
COPY --from=layout --chown=65534:65534 /data /var/lib/tidegate
# The programs of the reference server's image and of Limitador's: their variables and arguments apply under these names.
COPY --from=layout /links/ /bin/
# A container is reached by its own address, not by loopback.
ENV TIDEGATE_LISTEN=0.0.0.0:8081
EXPOSE 8081
USER 65534:65534
ENTRYPOINT ["/usr/local/bin/tidegate"]
CMD ["serve"]
